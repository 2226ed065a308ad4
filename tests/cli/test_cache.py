from __future__ import annotations

from pathlib import Path

import pytest

from firstword.cli.cache import usage_line
from firstword.weights.panel_cache import PanelCache
from tests.cli.commands import Terminal


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
    assert usage_line() == "prepared weights: 2 files, 2 MB; see firstword cache"


def test_clear_removes_them_all(terminal: Terminal, folder: Path) -> None:
    assert terminal.run("cache", "clear").stdout == "removed 2 files, 2 MB\n"
    assert [path.name for path in folder.iterdir()] == ["notes"]
    assert terminal.run("cache", "clear").stdout == "removed 0 files, 0 bytes\n"


def test_one_file_is_no_plural(folder: Path) -> None:
    (folder / "b.panels").unlink()
    assert "1 file, 10 kB" in usage_line()


def test_other_actions_are_usage_errors(terminal: Terminal) -> None:
    end = terminal.run("cache", "clean")
    assert end.status == 2
    assert "give show or clear" in end.stderr


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
