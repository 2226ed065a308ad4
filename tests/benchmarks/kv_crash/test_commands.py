"""What counts as right and wrong; the commands themselves are run in test_main."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.endurance.report import Report
from benchmarks.kv_crash.commands import CommandChecks
from benchmarks.kv_crash.tally import Tally


class Checks(CommandChecks):
    """Whose commands say what they are told to."""

    def __init__(self, *outcomes: str | Exception) -> None:
        super().__init__(Report(), 1, str(Path(__file__)))
        self._said = ["right"] * 6
        self.outcomes = list(outcomes)

    def _run(self, index: int, max_bytes: int, limit: float | None = None) -> tuple[str, int]:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome, 3


def test_killed_ones_count_for_nothing_and_failures_and_wrong_answers_do() -> None:
    killed = subprocess.TimeoutExpired("firstword", 1)
    failed = subprocess.CalledProcessError(1, "firstword")
    checks, tally = Checks("right", killed, "wrong", failed), Tally()
    for _ in range(4):
        checks._count_run(tally, 0, 1.0)
    assert (tally.num_answers, tally.num_disk) == (2, 6)
    assert (tally.num_wrong, tally.num_failed, tally.num_beyond_cap) == (1, 1, 0)


def test_a_check_says_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    Checks(*["right"] * 9).runs(2)
    assert capsys.readouterr().out.startswith("ok      firstword run: 2 kills: 8 answers")
