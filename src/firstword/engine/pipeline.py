"""Keeps a runner busy: the step under way and, where possible, one that follows on it at once.

Not here: what a step is made of (batch_builder) and what comes of it (engine).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from firstword.batch import StepInput, StepResult
from firstword.engine.batch_builder import build_step, build_step_ahead
from firstword.engine.runner import Runner
from firstword.engine.scheduler import Scheduler
from firstword.engine.sequence_sampling import SequenceSampling
from firstword.engine.step import SchedulerOutput
from firstword.kvcache.spec import KVCacheSpec

Sampling = Mapping[str, SequenceOf[SequenceSampling]]
"""How tokens are chosen, by request id, one for each of its samples."""


@dataclass(frozen=True)
class Launched:
    """A step that the runner has been given.

    Args:
        output: what the scheduler decided.
        step: its arrays.
        time: when it was given, or when the step before it ended if that was later; seconds.
        request_ids: who takes part in it.
    """

    output: SchedulerOutput
    step: StepInput
    time: float
    request_ids: frozenset[str]


class Pipeline:
    """Steps on their way through a runner.

    A step whose rows all go on with the token just sampled is prepared while the one before it
    runs, so that compiled code need not wait for Python.

    Args:
        scheduler: decides what steps compute.
        runner: runs them.
        kv: the KV groups.
        num_candidates: least number of candidates recorded with every token.
        clock: seconds.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        kv: KVCacheSpec,
        num_candidates: int,
        clock: Callable[[], float],
    ) -> None:
        self.runner = runner
        self._scheduler, self._kv = scheduler, kv
        self._num_candidates, self._clock = num_candidates, clock
        self._launched: deque[Launched] = deque()
        self._handles: deque[int] = deque()

    @property
    def under_way(self) -> Launched | None:
        """The step that runs; any thread may ask."""
        launched = self._launched
        try:
            return launched[0]
        except IndexError:
            return None

    def launch(self, output: SchedulerOutput, sampling: Sampling) -> Launched:
        """Give the runner a step; returns what it was given."""
        step = build_step(output, self._kv, sampling, self._num_candidates)
        return self._launch(output, step)

    def launch_ahead(self, sampling: Sampling) -> None:
        """Give the runner the step that follows on the one under way, if that can be.

        Args:
            sampling: of the requests in the step under way that are still wanted.
        """
        before = self._launched[0]
        if not self.runner.runs_ahead or len(self._launched) > 1:
            return
        if any(sample.depends_on_tokens for samples in sampling.values() for sample in samples):
            return
        output = self._scheduler.schedule_ahead()
        if output is None:
            return
        try:
            step = build_step_ahead(output, before.output, self._kv, sampling, self._num_candidates)
            self._launch(output, step)
        except BaseException:
            self._scheduler.discard(output)
            raise

    def _launch(self, output: SchedulerOutput, step: StepInput) -> Launched:
        # Known before it runs: whoever wants to end it may ask at any time.
        launched = Launched(output, step, self._clock(), output.request_ids)
        self._launched.append(launched)
        try:
            self._handles.append(self.runner.submit(step))
        except BaseException:
            self._launched.pop()
            raise
        return launched

    def collect(self) -> StepResult:
        """Wait for the result of the step under way; `retire` or `drop` must follow."""
        return self.runner.collect(self._handles[0])

    def retire(self) -> None:
        """The step under way is over: the scheduler is about to take in its result."""
        self._launched.popleft()
        self._handles.popleft()

    def drop(self) -> None:
        """Take back all steps; their sequences go on from where they were."""
        self.runner.drop()
        self._handles.clear()
        while self._launched:
            self._scheduler.discard(self._launched.pop().output)

    def drop_if_useless(self) -> None:
        """Take back a step under way of which every sequence has ended."""
        if self._launched and all(
            item.sequence.is_finished
            for launched in self._launched
            for item in launched.output.scheduled
        ):
            self.drop()
