from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.results import EngineResult, Results, RowResult
from benchmarks.peers.rows import Goal, parse_row
from benchmarks.peers.session import Memory

WORK = {
    "tokens": 64,
    "steps": 32,
    "num_bytes": 10,
    "linear_macs": 30.0,
    "narrow_macs": 10.0,
    "weight_bytes": 10**9,
    "kv_bytes": 10**8,
}


def result(*peers: EngineResult, ours: list[float]) -> RowResult:
    first = EngineResult("us", "", "1", ours, dict(WORK), Memory(10**9, 2 * 10**9))
    return RowResult("m/decode:64", "m.gguf", 2, "now", [first, *peers], 100.0, 20.0, 10.0)


def test_the_ratio_is_our_median_over_the_best_peers() -> None:
    slow, fast = EngineResult("a", "", "1", [1.0] * 3), EngineResult("b", "", "1", [8.0, 2.0, 8.0])
    failed = EngineResult("c", "", "1", [99.0], error="it broke")
    row = result(slow, fast, failed, ours=[30.0, 10.0, 20.0])
    assert row.best_peer(Goal()) is fast
    assert row.ratio(Goal()) == pytest.approx(2.5)
    assert row.ratio(Goal(), max) == pytest.approx(30 / 8)
    assert row.ratio(Goal(peers=("a",))) == pytest.approx(20.0)
    assert result(ours=[4.0]).ratio(Goal()) is None


def test_limits_are_of_a_step_of_all_sequences() -> None:
    row = result(ours=[10.0])
    assert row.limit("memory") == pytest.approx(2 * 100 / 10)
    assert row.limit("arithmetic") == pytest.approx(2 / (10 / 20 + 20 / 10))
    assert row.share(parse_row("m/decode:64")) == pytest.approx(0.5)
    row.narrow_rate = 0.0
    assert row.limit("arithmetic") is None and row.share(parse_row("m/prefill:64")) is None
    assert result(ours=[]).limit("memory") is None


def test_a_busy_machine_is_known_by_its_load() -> None:
    row = result(ours=[1.0])
    for loads, busy in (([2.1, 9.0, 2.0], False), ([5.0, 2.0, 4.0], True), ([None], False)):
        row.load_averages = list(loads)
        assert row.is_busy is busy


def test_memory_is_set_against_what_was_planned() -> None:
    assert result(ours=[1.0]).memory_allowed == pytest.approx(1.05 * 1.3e9)
    without = RowResult("m/decode:64", "m.gguf", 2, "now", [EngineResult("us", "", "1")])
    assert without.memory_allowed is None


def test_a_file_keeps_rows_and_later_ones_replace_them(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.json"
    assert Results.load(path) == Results()
    kept = Results({"cpu": "fast"})
    kept.add(result(ours=[1.0]))
    kept.add(result(EngineResult("a", "s", "1", error="no"), ours=[2.0]))
    kept.save(path)
    again = Results.load(path)
    assert again == kept and list(again.rows) == ["m/decode:64"]
    path.write_text('{"format": 1}')
    assert Results.load(path) == Results()
