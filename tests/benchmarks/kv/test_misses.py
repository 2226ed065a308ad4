from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.kv import misses
from benchmarks.kv.completion import Usage, Words
from benchmarks.kv.misses import Found, Stage
from tests.benchmarks.kv.conftest import FLAGS


def usage(cause: str | None, position: int = 0) -> Usage:
    miss = {} if cause is None else {"cause": cause, "position": position}
    return Usage(10, 0, 2, {"memory": 0}, 10, miss)


@pytest.mark.parametrize(
    ("cause", "position", "told", "is_right"),
    [
        (None, None, usage(None), True),
        (None, None, usage("evicted"), False),
        ("evicted", 0, usage("evicted", 0), True),
        ("evicted", 0, usage("evicted", 32), False),
        ("evicted", None, usage("evicted", 32), True),
        ("evicted", 0, usage("expired", 0), False),
        ("evicted", 0, usage(None), False),
    ],
)
def test_cause_and_position_have_to_be_those_planted(
    cause: str | None, position: int | None, told: Usage, is_right: bool
) -> None:
    assert Found("it", cause, position, told).is_right is is_right


def test_planted_texts_are_told_apart_by_a_real_server(
    tiny_model: Path, tiny_words: Words, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Words, "of", lambda model: tiny_words)
    stage = Stage(tiny_model, 1, home)
    prompt = stage.text(150)
    with stage.server(*FLAGS):
        stage.ask("first", prompt)
        changed = [*prompt[:70], stage.other(prompt[70]), *prompt[71:]]
        stage.ask("changed", changed, "different_text", 70)
    with stage.server(*FLAGS):
        stage.ask("again", prompt)
    assert [one.is_right and one.usage.adds_up for one in stage.found] == [True] * 3
    assert stage.found[-1].usage.sources["disk"] >= 128


def test_scenes_that_are_asked_for_are_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model: Path
) -> None:
    def one(stage: Stage) -> None:
        stage.found += [Found("a", None, None, usage(None)), Found("b", "evicted", 3, usage(None))]

    def two(stage: Stage) -> None:
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(misses, "SCENES", (one, two))
    options = SimpleNamespace(model=str(tiny_model), scenes="one", threads=1)
    found = misses.measure(options)  # type: ignore[arg-type]
    assert [goal.value for goal in found.goals] == [1, 0]
    assert "| b | evicted at 3 | none | 10 | 0 | 0 | 0 | no |" in found.page("today")
