"""The page of guarantees names the tests there are, no more and no fewer."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "guarantees.md"
MAX_EXCEPTIONS = 4


def rows() -> dict[int, str]:
    """Each item's row of the table."""
    text = PAGE.read_text(encoding="utf-8")
    return {int(row[1]): row[0] for row in re.finditer(r"^\| P(\d\d) \|.*", text, re.MULTILINE)}


def files_with_tests() -> dict[int, set[str]]:
    """The files of the tests that are named after each item."""
    found: dict[int, set[str]] = defaultdict(set)
    for file in TESTS.rglob("test_*.py"):
        names = re.findall(
            r"^def test((?:_p\d\d)+)_", file.read_text(encoding="utf-8"), re.MULTILINE
        )
        for item in re.findall(r"\d\d", "".join(names)):
            found[int(item)].add(file.relative_to(TESTS).as_posix())
    return found


def test_every_item_names_the_files_of_its_tests() -> None:
    files = files_with_tests()
    assert sorted(rows()) == list(range(1, 31))
    assert set(files) <= set(rows())
    for item, row in rows().items():
        named = re.findall(r"`([\w/]+\.py)`", row)
        assert sorted(named) == sorted(files[item]), f"P{item:02}"


def test_exceptions_are_few_and_explained() -> None:
    exceptions = [item for item, files in rows().items() if "*Exception*" in files]
    assert exceptions == [item for item in rows() if item not in files_with_tests()]
    assert len(exceptions) <= MAX_EXCEPTIONS
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^- \*\*P(\d\d)\*\*: \w", text, re.MULTILINE) == [
        f"{item:02}" for item in exceptions
    ]
