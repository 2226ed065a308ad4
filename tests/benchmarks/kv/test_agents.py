from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.kv import agents
from benchmarks.kv.agents import findings, peers
from benchmarks.kv.completion import Words
from benchmarks.kv.player import Played, Record
from benchmarks.kv.sides import SETTINGS


def played(name: str, computed: int, seconds: float, adds_up: bool) -> Played:
    kinds = ("start", "continue", "continue")
    sources = {"memory": 4}
    return Played(
        name,
        [
            Record(number, kind, 50, 3, computed, 10, 0.1, seconds, sources, adds_up)
            for number, kind in enumerate(kinds)
        ],
    )


def test_ours_is_set_against_the_fastest_of_the_others() -> None:
    mine = played("firstword", 10, 1.0, adds_up=True)
    others = [played("llama.cpp, a", 20, 3.0, False), played("llama.cpp, b", 15, 2.5, False)]
    found = findings([mine, *others], 2.0, [100], 2500)
    assert [goal.value for goal in found.goals] == [0.0, 2.5, 0] and found.is_met
    page = found.page("today")
    assert "restarts before turns 100" in page
    assert "| firstword | 3 | 30 | 30 | 0.00% | memory 12 |" in page
    assert "| continue | 2 | 0 | 2 | 20 | 6 | 10 | 5 |" in page


def test_sources_that_do_not_add_up_miss_the_goal() -> None:
    found = findings([played("firstword", 11, 1.0, adds_up=False)], 2.0, [], 2500)
    assert [goal.is_met for goal in found.goals] == [False, False, False]
    assert found.goals[1].value is None and found.goals[2].value == 3


def test_settings_are_chosen_by_name() -> None:
    def chosen(text: str, none: bool = False) -> list[str]:
        options = SimpleNamespace(peers=text, no_peers=none)
        return list(peers(options))  # type: ignore[arg-type]

    assert chosen("one slot;a slot each, pinned") == ["one slot", "a slot each, pinned"]
    assert len(chosen("all")) == len(SETTINGS)
    assert chosen("all", none=True) == []
    with pytest.raises(ValueError, match="no 'other'"):
        chosen("other")


def test_all_sides_are_asked_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Silent:
        def __init__(self, side: SimpleNamespace, *arguments: object) -> None:
            self.name = side.name

        async def play(self, turns: list[object], restarts: list[int]) -> Played:
            asked.append(f"{self.name}, {len(turns)} turns, {restarts}")
            return played(self.name, 10, 1.0, adds_up=True)

    words = SimpleNamespace(ids=range(100), begin=())
    monkeypatch.setattr(agents, "Player", Silent)
    monkeypatch.setattr(agents, "find", Path)
    monkeypatch.setattr(agents, "LlamaCpp", lambda: SimpleNamespace(install=lambda: None))
    monkeypatch.setattr(Words, "of", lambda model: words)
    monkeypatch.setattr(agents, "theirs", lambda name, *rest: SimpleNamespace(name=name))
    options = SimpleNamespace(
        model="m", turns=4, system=2500, seed=0, memory=1.0, peers="one slot", no_peers=False,
        no_ours=False, restarts="2,3", flags="", quiet=True, threads=1,
    )  # fmt: skip
    agents.measure(options)  # type: ignore[arg-type]
    assert asked == ["firstword, 4 turns, [2, 3]", "one slot, 4 turns, [2, 3]"]
