from __future__ import annotations

import itertools

import numpy as np
import pytest

from firstword.batch import SampledToken, StepInput, StepResult
from firstword.bench.timing import TimedRunner, TimedStep, span
from firstword.ops.cost import planned_batch


class Fixed:
    """Always the same result."""

    def submit(self, step: StepInput) -> int:
        return 7

    def collect(self, handle: int) -> StepResult:
        assert handle == 7
        return StepResult((SampledToken(1, 0.0, 1.0, 1),), forward_ms=1500.0, sampling_ms=500.0)


def test_steps_are_noted_with_their_sizes_and_times() -> None:
    ticks = itertools.count(10)
    runner = TimedRunner(Fixed(), clock=lambda: float(next(ticks)))
    result = runner.collect(runner.submit(StepInput(planned_batch([(0, 5), (9, 1)], 1), ())))
    assert result.sampled
    assert runner.steps == [TimedStep(10.0, 11.0, num_tokens=6, num_seqs=2, inside=2.0)]


def test_a_span_holds_the_time_between_its_steps() -> None:
    steps = [TimedStep(1.0, 2.0, 3, 1, 0.75), TimedStep(4.0, 5.0, 1, 1, 0.75)]
    whole = span(0.0, steps)
    assert (whole.seconds, whole.num_tokens, whole.num_steps) == (5.0, 4, 2)
    assert whole.outside_share == pytest.approx(0.7)
    assert np.isclose(span(4.0, steps[1:]).outside_share, 0.25)
