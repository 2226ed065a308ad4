from __future__ import annotations

from pathlib import Path

from benchmarks.peers.choices import Choices, Tried
from benchmarks.peers.engine import Engine
from benchmarks.peers.results import EngineResult, RowResult
from benchmarks.peers.rows import BY_ID, parse_row
from tests.benchmarks.peers.rivals import Rival

ROW = parse_row("m/prefill:8")
ENGINES: list[Engine] = [
    Rival("a"),
    Rival("a", setting="quick"),
    Rival("b"),
    Rival("c"),
    Rival("llama.cpp"),
]


def found(name: str, setting: str, speeds: list[float]) -> RowResult:
    return RowResult(ROW.id, "m.gguf", 2, "now", [EngineResult(name, setting, "1", speeds)])


def names(choices: Choices, least: float = 0.0) -> list[tuple[str, str]]:
    return [(e.name, e.setting) for e in choices.contenders(ROW, ENGINES[:4], least)]


def test_the_best_setting_of_each_engine_is_kept(tmp_path: Path) -> None:
    choices = Choices()
    choices.add([found("a", "", [3.0, 4.0]), found("a", "quick", [5.0, 1.0]), found("b", "", [])])
    assert choices.tried[ROW.id] == {"a": Tried("quick", 5.0), "b": Tried("", 0.0)}
    assert names(choices) == [("a", "quick"), ("c", "")]
    choices.save(tmp_path / "x" / "settings.json")
    assert Choices.load(tmp_path / "x" / "settings.json") == choices


def test_engines_far_behind_are_left_out_when_asked() -> None:
    choices = Choices()
    choices.add([found("a", "", [10.0]), found("b", "", [7.0]), found("c", "", [9.0])])
    assert [name for name, _ in names(choices, 0.8)] == ["a", "c"]


def test_without_a_file_engines_run_as_they_are(tmp_path: Path) -> None:
    choices = Choices.load(tmp_path / "missing.json")
    assert names(choices) == [("a", ""), ("b", ""), ("c", "")]
    (tmp_path / "old.json").write_text("{}")
    assert Choices.load(tmp_path / "old.json") == choices


def test_only_peers_that_count_are_contenders() -> None:
    batched, alone = BY_ID["smollm2:135m/decode:32@128x16"], BY_ID["8b:q4_0/decode:16@128"]
    assert [e.name for e in Choices().contenders(batched, ENGINES)] == ["llama.cpp"]
    assert Choices().contenders(alone, ENGINES) == []
