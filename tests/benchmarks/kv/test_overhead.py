from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.kv import overhead
from benchmarks.kv.decode import Run
from benchmarks.kv.overhead import bootstrap
from benchmarks.kv.results import Findings


def test_the_interval_holds_the_ratio_and_narrows_with_the_pairs() -> None:
    drawn = random.Random(1)

    def pairs(count: int) -> list[tuple[float, float]]:
        return [(drawn.gauss(97, 5), drawn.gauss(100, 5)) for _ in range(count)]

    few, many = bootstrap(pairs(10), 1000), bootstrap(pairs(200), 1000)
    for ratio in (few, many):
        assert ratio.low <= ratio.value <= ratio.high
    assert many.high - many.low < few.high - few.low
    assert many.low < 0.97 < many.high
    assert str(bootstrap([(1.0, 2.0)] * 3, 100)) == "0.500 (0.500 to 0.500)"


def measured(
    home: Path, monkeypatch: pytest.MonkeyPatch, runs: Callable[..., list[Run]], one_process: bool
) -> Findings:
    """What is found in three pairs of given runs."""
    monkeypatch.setattr(overhead, "_runs", runs)
    monkeypatch.setattr(overhead, "find", Path)
    monkeypatch.setenv("FIRSTWORD_HOME", str(home))
    options = SimpleNamespace(
        model="m", pairs=3, memory=1.0, prompt=8, generate=8, batch=1, threads=1,
        one_process=one_process,
    )  # fmt: skip
    return overhead.measure(options)  # type: ignore[arg-type]


def test_pairs_take_turns_and_read_the_same_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def runs(model: Path, home: Path, options: object, *, disk: int, seed: int) -> list[Run]:
        asked.append((disk > 0, seed))
        if disk:
            (home / "kv").mkdir()
            (home / "kv" / "1.kv").write_bytes(bytes(1000))
        return [Run(500.0, 98.0 if disk else 100.0, 2**29)]

    found = measured(tmp_path, monkeypatch, runs, one_process=False)
    writing = [is_writing for is_writing, _ in asked]
    assert writing == [False, True, True, False, False, True]
    assert [seed for _, seed in asked] == [0, 0, 1, 1, 2, 2]
    assert [goal.value for goal in found.goals] == [0.98, 0.5] and found.is_met
    assert "0.980 (0.980 to 0.980)" in found.page("today")


def test_rounds_of_one_process_are_paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(model: Path, home: Path, options: object, *, disk: int, alternate: int) -> list[Run]:
        assert disk > 0
        (home / "kv").mkdir()
        (home / "kv" / "1.kv").write_bytes(bytes(3000))
        return [Run(500.0, speed, 2**29) for speed in (99.0, 100.0)] * alternate

    found = measured(tmp_path, monkeypatch, runs, one_process=True)
    assert [goal.value for goal in found.goals] == [0.99, 0.5]
    assert "3 pairs in one process" in found.page("today")
    assert str(found.details["pairs"]).count("'written': 1000") == 3
