"""A step in the making, until it becomes the plain value that a scheduler hands out.

Not here: who goes into it (scheduler) and how much of the budget each may take (turns).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from firstword.engine.policy import Budget
from firstword.engine.request import Sequence
from firstword.engine.shares import KeyShares
from firstword.engine.step import (
    Preemption,
    ScheduledSequence,
    SchedulerOutput,
    StepTime,
    load_of,
)
from firstword.kvcache.prefix_cache import PrefixHit


@dataclass
class StepDraft:
    """What has been decided of a step so far.

    Args:
        budget: what is left.
        shares: charged with what goes into the step.
        scheduled: sequences, and how many positions of each are computed.
        preemptions: who lost its blocks.
        prefix_hits: who was admitted, and what the cache gave it.
    """

    budget: Budget
    shares: KeyShares
    scheduled: list[tuple[Sequence, int]] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    prefix_hits: list[tuple[Sequence, PrefixHit]] = field(default_factory=list)

    def include(self, sequence: Sequence, num_tokens: int) -> None:
        """Let a sequence compute its next `num_tokens` positions; its blocks are there."""
        self.scheduled.append((sequence, num_tokens))
        self.shares.charge(sequence.request.key, num_tokens)

    def output(
        self, number: int, time: float, preemptions: Iterable[Preemption]
    ) -> SchedulerOutput:
        """The step as a value.

        Args:
            number: of the step, from 1.
            time: seconds on the scheduler's clock.
            preemptions: all that have to be reported with it.
        """
        scheduled = tuple(self._scheduled(*entry) for entry in self.scheduled)
        load = load_of(scheduled)
        return SchedulerOutput(
            step=number,
            time=time,
            scheduled=scheduled,
            block_copies=self.budget.manager.step_copies,
            preemptions=tuple(preemptions),
            prefix_hits=tuple(self.prefix_hits),
            load=load,
            predicted_ms=self.budget.step_time.total(load),
        )

    def _scheduled(self, sequence: Sequence, size: int) -> ScheduledSequence:
        start = sequence.num_computed_tokens
        samples: tuple[int, ...] = ()
        if start + size == sequence.num_tokens:
            samples = (sequence.index, *(s.index for s in sequence.request.unforked))
        tables = self.budget.manager.block_tables(sequence)
        return ScheduledSequence(sequence, start, size, samples, tables)


def plain_step(
    number: int, time: float, scheduled: tuple[ScheduledSequence, ...], step_time: StepTime
) -> SchedulerOutput:
    """A step on the way to which nothing happened: nobody began in it or lost its blocks.

    Args:
        number: of the step.
        time: seconds on the scheduler's clock.
        scheduled: what is computed.
        step_time: predicts its milliseconds.
    """
    load = load_of(scheduled)
    return SchedulerOutput(
        step=number,
        time=time,
        scheduled=scheduled,
        block_copies=(),
        preemptions=(),
        prefix_hits=(),
        load=load,
        predicted_ms=step_time.total(load),
    )
