"""What the pages name is there: files, tables and functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("docs/adding_a_kernel.md", "docs/adding_a_model.md")
STORIES = ("docs/tour.md", *sorted(f"docs/adr/{p.name}" for p in ROOT.glob("docs/adr/*.md")))
LINKING = (*PAGES, "README.md", "docs/tour.md", "docs/serving.md", "docs/cli.md")
FOLDERS = ("src", "csrc", "tests", "benchmarks", "scripts")


def code_spans(page: str) -> list[str]:
    """Texts between single backticks, those in blocks of code excepted."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def paths(page: str) -> Iterator[str]:
    for span in code_spans(page):
        is_path = re.fullmatch(r"(?:\w+/)+[\w./*]*|[A-Z]+\.md", span)
        if is_path and span.split("/")[0] in (*FOLDERS, "docs", "README.md", "CHANGELOG.md"):
            yield span


def names(page: str) -> Iterator[str]:
    """Words that look like names in a program: with an underscore or a capital letter inside."""
    for span in code_spans(page):
        if re.fullmatch(r"_?\w*(?:\w_\w|[a-z][A-Z]|[A-Z]{3})\w*", span):
            yield span


@cache
def source_text() -> str:
    suffixes = {".py", ".pyi", ".h", ".cpp", ".txt"}
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    return "\n".join(p.read_text(encoding="utf-8") for p in files if p.suffix in suffixes)


@pytest.mark.parametrize("page", PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    named = set(paths(page))
    assert len(named) > 20
    missing = [path for path in sorted(named) if not list(ROOT.glob(path.rstrip("/")))]
    assert not missing


@pytest.mark.parametrize("page", PAGES)
def test_names_exist_in_the_source(page: str) -> None:
    named = set(names(page))
    assert len(named) > 10
    assert not [name for name in sorted(named) if name not in source_text()]


@pytest.mark.parametrize("page", STORIES)
def test_files_of_the_tour_and_of_decisions_exist(page: str) -> None:
    """Their paths begin below the package, or are a name alone in a folder named before."""
    named = {s for s in code_spans(page) if re.fullmatch(r"[\w/]+\.(?:py|h|cpp)", s)}
    roots = (ROOT / "src" / "firstword", ROOT)
    missing = [
        path
        for path in sorted(named)
        if not any((root / path).exists() for root in roots)
        and ("/" in path or not list(roots[0].rglob(path)))
    ]
    assert not missing


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", text)
    assert links
    assert not [link for link in links if not ((ROOT / page).parent / link).exists()]
