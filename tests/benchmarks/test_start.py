from __future__ import annotations

import sys

import pytest

from benchmarks.start import Times, first_byte, interleaved, wall


def test_the_first_byte_comes_before_the_end() -> None:
    script = "import sys, time; print('a', flush=True); time.sleep(0.5)"
    command = [sys.executable, "-c", script]
    assert first_byte(command) < wall(command)


def test_a_command_without_an_answer_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="wrote nothing"):
        first_byte([sys.executable, "-c", "pass"])


def test_runs_take_turns_and_the_first_does_not_count() -> None:
    order: list[str] = []

    def run(name: str) -> float:
        order.append(name)
        return float(len(order))

    times = interleaved({"a": lambda: run("a"), "b": lambda: run("b")}, 2)
    assert order == ["a", "b"] * 3
    assert times == [Times("a", [3.0, 5.0]), Times("b", [4.0, 6.0])]
    assert times[0].median == 4.0
    assert "4000 ms" in str(times[0])
