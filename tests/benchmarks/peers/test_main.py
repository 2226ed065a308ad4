from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.make_model import SHAPES, write_model
from benchmarks.peers import __main__ as command
from benchmarks.peers.choices import Choices, Tried
from benchmarks.peers.compare import Plan, Progress
from benchmarks.peers.engine import Engine
from firstword.bench.machine import Limits
from tests.benchmarks.peers.rivals import Rival


def test_peers_are_chosen_with_all_of_their_settings() -> None:
    engines = command.chosen_engines("llama.cpp,ik_llama.cpp")
    assert {engine.name for engine in engines} == {"llama.cpp", "ik_llama.cpp"}
    assert len(engines) > 5
    assert command.chosen_engines("") == []
    with pytest.raises(ValueError, match="no peer 'other'"):
        command.chosen_engines("other")


def test_peers_without_a_way_to_hold_them_to_avx2_are_not_among_those_that_are() -> None:
    native, avx2 = ({e.name for e in command.chosen_engines(None, isa)} for isa in command.PEERS)
    assert native - avx2 == {"ONNX Runtime GenAI"} and avx2 < native
    settings = [command.settings_file(isa).name for isa in command.PEERS]
    assert settings == ["settings.json", "settings-avx2.json"]


def test_what_cannot_be_installed_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Rival("kept")
    assert command.install([kept, Rival("broken", installs=False)]) == [kept]
    assert "broken is left out: no compiler" in capsys.readouterr().err


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    write_model(path, SHAPES["tiny"], "Q8_0")
    return str(path)


def quick_plan(threads: int, rounds: int, progress: Progress) -> Plan:
    """One that takes the machine's limits for granted."""
    return Plan(threads, rounds, progress, lambda threads: Limits(9.0, None))


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: str) -> list[str]:
    """A command line of one row, with a peer in two settings."""
    monkeypatch.setattr(command, "Firstword", lambda: Rival("firstword", [6.0] * 3))
    peers: list[Engine] = [Rival("peer", [2.0] * 3), Rival("peer", [3.0] * 3, "quick")]
    monkeypatch.setattr(command, "PEERS", {"native": {"peer": peers}, "avx2": {"peer": peers[:1]}})
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(command, "Plan", quick_plan)
    files = ["--out", str(tmp_path / "out"), "--settings", str(tmp_path / "settings.json")]
    words = ["peers", "--rows", f"{model}/prefill:5", "--engines", "peer", "--rounds", "2"]
    monkeypatch.setattr(sys, "argv", [*words, "--day", "2026-01-02", *files])
    return sys.argv


def test_settings_are_tried_kept_and_then_used(
    arguments: list[str], tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments.append("--all-settings")
    command.main()
    kept = Choices.load(tmp_path / "settings.json")
    assert kept.tried[f"{model}/prefill:5"]["peer"].setting == "quick"
    assert not (tmp_path / "out").exists()

    arguments.pop()
    command.main()
    page = (tmp_path / "out" / "2026-01-02-peers.md").read_text()
    assert page in capsys.readouterr().out and "| peer quick | 3.0 (3.0-3.0) | 2.00x" in page
    report = json.loads((tmp_path / "out" / "2026-01-02-peers.json").read_text())
    assert [engine["name"] for engine in report["rows"][0]["engines"]] == ["firstword", "peer"]


def test_a_session_can_be_held_to_avx2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTWORD_ISA", "generic")
    arguments += ["--isa", "avx2"]
    command.main()
    assert os.environ["FIRSTWORD_ISA"] == "avx2"
    report = json.loads((tmp_path / "out" / "2026-01-02-peers-avx2.json").read_text())
    assert [engine["setting"] for engine in report["rows"][0]["engines"]] == ["", ""]


def test_rows_of_the_same_day_and_name_come_together(
    arguments: list[str], tmp_path: Path, model: str
) -> None:
    command.main()
    arguments[arguments.index("--rows") + 1] = f"{model}/text:9"
    command.main()
    report = json.loads((tmp_path / "out" / "2026-01-02-peers.json").read_text())
    assert [row["row"].rpartition("/")[2] for row in report["rows"]] == ["prefill:5", "text:9"]


def test_peers_far_behind_are_left_out(arguments: list[str], tmp_path: Path, model: str) -> None:
    choices = Choices()
    choices.tried[f"{model}/prefill:5"] = {"peer": Tried("", 1.0), "faster": Tried("", 9.0)}
    choices.save(tmp_path / "settings.json")
    command.main()
    command.main()
    arguments += ["--contenders", "1.5"]
    command.main()
    report = json.loads((tmp_path / "out" / "2026-01-02-peers.json").read_text())
    assert [engine["name"] for engine in report["rows"][0]["engines"]] == ["firstword"]


def test_rows_are_listed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    arguments[arguments.index("--rows") + 1] = "8b:*"
    arguments.append("--list")
    command.main()
    assert capsys.readouterr().out == f"{'8b:q4_0/decode:16@128':<32}90% of the limit\n"
