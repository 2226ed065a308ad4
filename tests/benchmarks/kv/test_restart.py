from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.kv import restart
from benchmarks.kv.completion import Words
from benchmarks.kv.restart import Round, Start, prompt_text
from tests.benchmarks.kv.conftest import FLAGS

TEXT = "it is the other one " * 10


def options(**more: object) -> SimpleNamespace:
    return SimpleNamespace(threads=1, flags=" ".join(FLAGS[:2]), **more)


@pytest.mark.parametrize("way", restart.WAYS)
def test_a_prompt_is_not_read_again_after_a_restart(way: str, tiny_model: Path, home: Path) -> None:
    found = restart.WAYS[way](tiny_model, TEXT, home, options())  # type: ignore[arg-type]
    assert found.way == way and found.is_same
    assert found.cold.seconds >= found.cold.ttft > 0 and found.cold.cached == 0
    if way == "serve":  # a killed server may have had no time to write anything
        assert found.warm.sources["disk"] == found.warm.cached
    else:
        assert found.warm.cached == 119, "of 120 tokens: the answer filled their last block"


def test_a_prompt_has_the_tokens_asked_for() -> None:
    words = Words({"time": 3, "year": 9}, (1,))
    text = prompt_text(words, 20, seed=0)
    assert len(text.split()) == 20 - 2, "the text's beginning, and the colon of its opening"
    assert text == prompt_text(words, 20, seed=0) != prompt_text(words, 20, seed=1)


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="ended with 3: no such model"):
        command = [sys.executable, "-c", "import sys; sys.stderr.write('no such model'); exit(3)"]
        restart._run(command, "", {})


def test_rounds_make_goals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(model: Path, text: str, home: Path, options: object) -> Round:
        warm = Start(0.4, 0.3, 19, {"disk": 19}, "other" if "r2" in str(model) else "same")
        return Round("serve", Start(10.0, 10.0, 0, {}, "same"), warm)

    monkeypatch.setattr(restart, "WAYS", {"serve": twice})
    monkeypatch.setattr(restart, "find", Path)
    monkeypatch.setattr(Words, "of", lambda model: Words({"time": 3}))
    given = options(cases="r1=20,r2=20", ways="serve", rounds=2)
    found = restart.measure(given)  # type: ignore[arg-type]
    assert [goal.value for goal in found.goals] == [0.04, 0, 0.04, 2]
    assert "| r1=20 | serve | 10 | 0.4 | 4.00% | 19 | 10.00, 0.300 |" in found.page("today")
