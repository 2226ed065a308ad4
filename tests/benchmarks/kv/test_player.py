from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.kv.completion import Words
from benchmarks.kv.player import Played, Player, Record
from benchmarks.kv.sides import Side
from benchmarks.kv.trace import Sizes, TraceMaker, Turn
from benchmarks.serving.servers import FirstwordServer
from tests.benchmarks.kv.conftest import FLAGS

SIZES = Sizes(turns=12, agents=2, system=100, role=10, message=(5, 40), answer=(2, 9), context=500)


def play(
    model: Path, words: Words, turns: Sequence[Turn], restarts: Sequence[int], home: Path
) -> Played:
    side = Side("ours", FirstwordServer(FLAGS), 2, 0, environment={"FIRSTWORD_HOME": str(home)})
    said: list[str] = []
    played = asyncio.run(Player(side, model, 1, words, said.append).play(turns, restarts))
    assert len(said) == len(turns) and "1 start" in said[0]
    return played


def test_a_trace_computes_the_least_and_little_more_with_a_restart_in_it(
    tiny_model: Path, tiny_words: Words, tmp_path: Path
) -> None:
    turns = [*TraceMaker(tiny_words.ids, SIZES, seed=1).turns()]
    whole = play(tiny_model, tiny_words, turns, [], tmp_path / "one")
    assert whole.computed == whole.least > 0 and whole.excess == 0
    assert all(record.adds_up and record.sources["disk"] == 0 for record in whole.records)
    cut = play(tiny_model, tiny_words, turns, [6], tmp_path / "two")
    assert cut.digest == whole.digest, "answers depend on nothing that was kept"
    assert cut.least == whole.least <= cut.computed
    assert all(record.adds_up for record in cut.records)
    assert sum(record.sources["disk"] for record in cut.records) > 0
    assert len(cut.starts) == 2 and cut.resident > cut.anonymous > 0


def test_a_trace_adds_up_its_turns() -> None:
    records = [
        Record(i, "continue", 10, 3, computed=12, least=10, ttft=0.1, seconds=0.5) for i in range(2)
    ]
    played = Played("ours", records)
    assert (played.seconds, played.computed, played.least) == (1.0, 24, 20)
    assert played.to_dict()["excess"] == pytest.approx(0.2)
    assert Played("nobody").excess == 0
