from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers import environment
from benchmarks.peers.environment import Environment


def test_it_is_made_once_for_each_set_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(environment, "run", lambda command: commands.append(list(command)))
    one = Environment("peer", ("a==1",), tmp_path)
    one.install()
    one.install()
    assert len(commands) == 2
    assert commands[0][-1] == str(tmp_path / "peer" / "venv")
    assert commands[1][0] == str(one.python) and commands[1][-1] == "a==1"
    Environment("peer", ("a==2",), tmp_path).install()
    assert len(commands) == 4


def test_it_lies_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path))
    peer = Environment("peer", ())
    assert peer.folder == tmp_path / "peers" / "peer"
    assert peer.program("cmake") == str(tmp_path / "peers" / "peer" / "venv" / "bin" / "cmake")
