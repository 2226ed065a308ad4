"""Times of steps, taken where the engine hands them to its backend.

No events are recorded meanwhile: what they cost is not part of what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firstword.batch import StepInput, StepResult
from firstword.engine.runner import Runner


@dataclass(frozen=True)
class TimedStep:
    """One step.

    Args:
        start: when it was handed over, in seconds.
        end: when its result was there.
        num_tokens: positions computed.
        num_seqs: sequences in it.
        inside: seconds in compiled code; of a backend in Python, seconds in it.
    """

    start: float
    end: float
    num_tokens: int
    num_seqs: int
    inside: float


class TimedRunner:
    """Passes steps on to a runner and notes how long they took.

    Args:
        runner: computes the steps.
        clock: seconds.
    """

    def __init__(self, runner: Runner, clock: Callable[[], float] = time.perf_counter) -> None:
        self._runner, self.clock = runner, clock
        self.runs_ahead = runner.runs_ahead
        self._pending: dict[int, tuple[float, StepInput]] = {}
        self.steps: list[TimedStep] = []

    def submit(self, step: StepInput) -> int:
        """Start a step; returns a handle for `collect`."""
        start = self.clock()
        handle = self._runner.submit(step)
        self._pending[handle] = start, step
        return handle

    def stop(self) -> None:
        """Pass it on."""
        self._runner.stop()

    def drop(self) -> None:
        """Pass it on; their times are forgotten."""
        self._runner.drop()
        self._pending.clear()

    def collect(self, handle: int) -> StepResult:
        """The result of a step; its times are noted."""
        result = self._runner.collect(handle)
        start, step = self._pending.pop(handle)
        batch = step.batch
        inside = (
            result.forward_ms + result.sampling_ms if result.native_ms is None else result.native_ms
        ) / 1e3
        self.steps.append(TimedStep(start, self.clock(), batch.num_tokens, batch.num_seqs, inside))
        return result


@dataclass(frozen=True)
class Span:
    """Consecutive steps, the time between them included.

    Args:
        seconds: from the beginning to the end of the last step.
        inside: seconds of these in compiled code, or in the backend.
        num_tokens: positions computed.
        num_steps: steps.
    """

    seconds: float
    inside: float
    num_tokens: int
    num_steps: int

    @property
    def outside_share(self) -> float:
        """Share of the time outside compiled code: scheduling, building batches, text."""
        return max(0.0, 1.0 - self.inside / self.seconds) if self.seconds else 0.0


def span(start: float, steps: Sequence[TimedStep]) -> Span:
    """The span from `start` over `steps`, of which there is at least one."""
    return Span(
        seconds=steps[-1].end - start,
        inside=sum(step.inside for step in steps),
        num_tokens=sum(step.num_tokens for step in steps),
        num_steps=len(steps),
    )
