from __future__ import annotations

import pytest

from firstword.batch import StepResult
from firstword.engine.gaps import Gaps


def test_a_gap_is_what_is_left_of_the_time_between_two_results() -> None:
    gaps = Gaps()
    gaps.measure(StepResult((), native_ms=5), 1.0, has_more=True)
    assert gaps.last_ms is None
    gaps.measure(StepResult((), native_ms=5), 1.007, has_more=True)
    assert gaps.last_ms == pytest.approx(2)


def test_a_step_that_ran_ahead_brings_its_own() -> None:
    gaps = Gaps()
    gaps.measure(StepResult((), native_ms=5), 1.0, has_more=True)
    gaps.measure(StepResult((), native_ms=5, gap_ms=0.25), 1.1, has_more=True)
    assert gaps.last_ms == 0.25


def test_time_without_work_is_no_gap() -> None:
    gaps = Gaps()
    gaps.measure(StepResult((), native_ms=5), 1.0, has_more=False)
    gaps.measure(StepResult((), native_ms=5), 9.0, has_more=True)
    assert gaps.last_ms is None


def test_steps_do_not_overlap() -> None:
    gaps = Gaps()
    assert gaps.span(1.0, 2.0) == (1.0, 2.0)
    assert gaps.span(1.5, 3.0) == (2.0, 3.0)
    assert gaps.span(4.0, 5.0) == (4.0, 5.0)
