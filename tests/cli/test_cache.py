from __future__ import annotations

from pathlib import Path

import pytest

from firstword.cli.cache import usage_line
from firstword.kvcache.disk.listing import list_stores
from firstword.weights.panel_cache import PanelCache
from tests.cli.commands import Terminal
from tests.kvcache.disk.blocks import IDENTITY, blocks, store_of


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of prepared weights, and what is no such file."""
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "panels"
    folder.mkdir(parents=True)
    for name, size in (("a.panels", 10_000), ("b.panels", 2_000_000), ("notes", 5)):
        (folder / name).write_bytes(bytes(size))
    return folder


def test_show_says_how_much_is_kept_and_where(terminal: Terminal, folder: Path) -> None:
    for arguments in (["cache"], ["cache", "show"]):
        lines = terminal.run(*arguments).stdout.splitlines()
        assert lines[:2] == [usage_line(), str(folder)]
        assert lines[2].startswith("prepared vocabularies: 0 files")
        assert lines[3] == str(folder.with_name("vocabularies"))
        assert lines[4:] == ["prompts: 0 tokens, 0 bytes", str(folder.with_name("kv"))]
    assert usage_line() == "prepared weights: 2 files, 2 MB; see firstword cache"


def test_clear_removes_them_all(terminal: Terminal, folder: Path) -> None:
    keep_prompts(folder.with_name("kv"))
    answer = terminal.run("cache", "clear").stdout
    assert answer == "removed 2 files, 2 MB\nremoved prompts, 1716 bytes\n"
    assert [path.name for path in folder.iterdir()] == ["notes"]
    assert list_stores(folder.with_name("kv")) == []
    answer = terminal.run("cache", "clear").stdout
    assert answer == "removed 0 files, 0 bytes\nremoved prompts, 0 bytes\n"


def keep_prompts(home: Path) -> None:
    store = store_of(home)
    assert all(store.append(block) for block in blocks(10))
    store.close()


def test_show_lists_the_prompts_of_each_model(terminal: Terminal, folder: Path) -> None:
    home = folder.with_name("kv")
    keep_prompts(home)
    lines = terminal.run("cache").stdout.splitlines()
    assert lines[4:] == [
        "prompts: 40 tokens, 1864 bytes",
        str(home),
        "  tiny (float16, native): 40 tokens, 1864 bytes",
        f"  {home / IDENTITY.digest.hex()}",
    ]


@pytest.mark.parametrize("kind", ["prompts", "weights", "vocabularies"])
def test_clear_can_remove_one_kind(terminal: Terminal, folder: Path, kind: str) -> None:
    keep_prompts(folder.with_name("kv"))
    assert terminal.run("cache", "clear", kind).stdout.startswith("removed ")
    assert bool(list_stores(folder.with_name("kv"))) == (kind != "prompts")
    assert len(list(folder.glob("*.panels"))) == (0 if kind == "weights" else 2)


def test_one_file_is_no_plural(folder: Path) -> None:
    (folder / "b.panels").unlink()
    assert "1 file, 10 kB" in usage_line()


def test_other_actions_are_usage_errors(terminal: Terminal) -> None:
    end = terminal.run("cache", "clean")
    assert end.status == 2
    assert "give show or clear" in end.stderr
    for arguments in (["clear", "kv"], ["show", "prompts"]):
        assert terminal.run("cache", *arguments).status == 2


def test_what_cannot_be_removed_is_an_error_in_one_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def refuse(self: PanelCache) -> None:
        raise PermissionError("Permission denied")

    monkeypatch.setattr(PanelCache, "clear", refuse)
    end = terminal.run("cache", "clear")
    assert end.status == 1
    assert f"cannot clear {folder} (Permission denied)" in end.stderr


def test_a_run_can_go_without(
    terminal: Terminal, chat_model: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr("firstword.weights.panel_cache.MIN_BYTES", 0)
    ask = ("run", "Hello", "-m", chat_model, "--max-tokens", "2", "--seed", "1")
    first = terminal.run(*ask, "--no-panel-cache")
    assert len(list(folder.glob("*.panels"))) == 2
    second = terminal.run(*ask)
    assert len(list(folder.glob("*.panels"))) == 3
    assert first == second
