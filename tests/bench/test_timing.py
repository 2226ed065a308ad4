from __future__ import annotations

import itertools

import numpy as np
import pytest

from firstword.batch import SampledToken, StepInput, StepResult
from firstword.bench.timing import TimedRunner, TimedStep, span
from firstword.ops.cost import planned_batch


class Fixed:
    """Always the same result."""

    def __init__(self, native_ms: float | None = None) -> None:
        self.native_ms = native_ms

    def submit(self, step: StepInput) -> int:
        return 7

    runs_ahead = False

    def stop(self) -> None: ...

    def drop(self) -> None: ...

    def collect(self, handle: int) -> StepResult:
        assert handle == 7
        tokens = (SampledToken(1, 0.0, 1.0, 1),)
        return StepResult(tokens, 1500.0, 500.0, self.native_ms)


def test_steps_are_noted_with_their_sizes_and_times() -> None:
    ticks = itertools.count(10)
    runner = TimedRunner(Fixed(), clock=lambda: float(next(ticks)))
    result = runner.collect(runner.submit(StepInput(planned_batch([(0, 5), (9, 1)], 1), ())))
    assert result.sampled
    assert runner.steps == [TimedStep(10.0, 11.0, num_tokens=6, num_seqs=2, inside=2.0)]


def test_only_compiled_code_counts_where_there_is_some() -> None:
    runner = TimedRunner(Fixed(native_ms=250.0))
    runner.collect(runner.submit(StepInput(planned_batch([(0, 5)], 1), ())))
    assert runner.steps[0].inside == 0.25


def test_a_span_holds_the_time_between_its_steps() -> None:
    steps = [TimedStep(1.0, 2.0, 3, 1, 0.75), TimedStep(4.0, 5.0, 1, 1, 0.75)]
    whole = span(0.0, steps)
    assert (whole.seconds, whole.num_tokens, whole.num_steps) == (5.0, 4, 2)
    assert whole.outside_share == pytest.approx(0.7)
    assert np.isclose(span(4.0, steps[1:]).outside_share, 0.25)
