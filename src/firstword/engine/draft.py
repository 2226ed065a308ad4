"""A step in the making, until it becomes the plain value that a scheduler hands out.

Not here: who goes into it (scheduler) and how the budget is divided (turns).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from firstword.engine.policy import Budget
from firstword.engine.request import Sequence, SequenceStatus
from firstword.engine.shares import KeyShares
from firstword.engine.step import Preemption, ScheduledSequence, SchedulerOutput, load_of
from firstword.kvcache.prefix_cache import PrefixHit
from firstword.kvcache.sources import CacheMiss, split_by_source


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

    def admit(self, sequence: Sequence, hit: PrefixHit) -> bool:
        """Let a waiting sequence begin behind what the cache gives it, as far as the budget goes.

        Args:
            sequence: which.
            hit: what the cache gives it.

        Returns:
            False, with nothing changed, where the budget is used up or blocks lack.
        """
        start, shortest = hit.num_tokens, self.budget.shortest_in_line
        size = self.budget.chunk(sequence, start, num_behind=0, shortest=shortest)
        if not self.scheduled:
            size = max(size, 1)
        if size <= 0:
            return False
        is_new = sequence.status is SequenceStatus.WAITING and sequence.num_output_tokens == 0
        # Before its own blocks evict what there is to tell of.
        miss = self._miss(sequence, hit) if is_new else None
        if not self.budget.manager.admit(sequence, size, hit):
            return False
        self.budget.spend(size, start)
        self.include(sequence, size)
        self.prefix_hits.append((sequence, hit))
        sequence.num_computed_tokens = start
        if is_new:
            sequence.sources, sequence.miss = split_by_source(start, sequence.waits), miss
        return True

    def _miss(self, sequence: Sequence, hit: PrefixHit) -> CacheMiss | None:
        miss = self.budget.manager.explain_miss(sequence, hit)
        if miss is not None and sequence.request.key:  # cached text may be another user's
            return replace(miss, cached_token_ids=())
        return miss

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
