"""How the budget of a step is divided between those that run, and what is kept for those in line.

Not here: blocks, and everything that changes a sequence (scheduler).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from firstword.engine.line import WaitingLine
from firstword.engine.policy import OWED_STRETCH, PASSES_WITHOUT_DECODES, Budget, stretch
from firstword.engine.request import Sequence
from firstword.engine.shares import KeyShares
from firstword.engine.step import StepTime
from firstword.kvcache.manager import KVCacheManager


@dataclass(frozen=True)
class Turns:
    """The rules that need to know who runs, who waits, and what keys have used.

    Args:
        manager: knows the free blocks.
        line: those who wait.
        shares: what each key has used.
        max_running: seats.
        max_num_tokens: positions in one step.
        budget_ms: predicted milliseconds of a step; None: as much as its decodes bear.
    """

    manager: KVCacheManager
    line: WaitingLine
    shares: KeyShares
    max_running: int
    max_num_tokens: int
    budget_ms: float | None

    def new_budget(self, step_time: StepTime) -> Budget:
        """What a step may take before anybody is served."""
        ms = inf if self.budget_ms is None else self.budget_ms
        return Budget(step_time, self.max_num_tokens, ms - step_time.ms_per_step, self.manager)

    def share_out(self, budget: Budget, running: list[Sequence], now: float) -> dict[Sequence, int]:
        """Positions for each running sequence: one at least, the one token for those that decode.

        What is left of the budget afterwards is for those in line.

        Args:
            budget: of the step.
            running: no more sequences than there are tokens.
            now: seconds on the scheduler's clock.
        """
        decoding = [s for s in running if s.num_pending_tokens == 1]
        sizes = dict.fromkeys(decoding, 1)
        decode_ms = budget.serve_decodes(decoding)
        if len(decoding) == len(running) and not self.line.num_ready:
            return sizes
        behind = [s for s in running if s.num_pending_tokens > 1]
        if len(behind) > 1:
            behind.sort(key=lambda sequence: self.line.place(sequence, now))
        next_in_line = self._next_in_line(running, now)
        if next_in_line is not None:
            budget.shortest_waiting = self.line.shortest()
        leads = next_in_line is not None and (
            not behind or self.line.place(next_in_line, now) < self.line.place(behind[0], now)
        )
        first = next_in_line if leads else behind[0] if behind else None
        if first is not None and self.budget_ms is None:
            self._limit_time(budget, running, decode_ms, first)
        if next_in_line is not None and leads and behind:
            return sizes | self._share_behind(budget, behind, next_in_line)
        return sizes | budget.share_out(behind)

    def admissible(self, running: list[Sequence], now: float) -> Iterator[Sequence]:
        """Those in line who may start, in order, without those that wait for another's block.

        Args:
            running: the running sequences; it may grow on the way.
            now: seconds on the scheduler's clock.
        """
        for sequence in self.line.in_order(now, running):
            if self._seat_is_kept_from(sequence, running):
                continue
            if not self.line.awaits_block(sequence):
                yield sequence

    def _seat_is_kept_from(self, sequence: Sequence, running: list[Sequence]) -> bool:
        """Whether the last eighth of the seats is kept for keys that have fewer than their part.

        It is kept where more than one key was ever seen.
        """
        num_free = self.max_running - len(running)
        if not self.shares.is_shared or num_free > self.max_running // 8:
            return False
        key = sequence.request.key
        held = sum(other.request.key == key for other in running)
        return held * max(self.shares.num_busy, 2) >= self.max_running

    def _next_in_line(self, running: list[Sequence], now: float) -> Sequence | None:
        """Who would be admitted next, if there is a seat."""
        if not self.line.num_ready or len(running) >= self.max_running:
            return None
        return next(self.admissible(running, now), None)

    def _limit_time(
        self, budget: Budget, running: list[Sequence], decode_ms: float, first: Sequence
    ) -> None:
        """Set the time that prompts may take in a step.

        Args:
            budget: of the step; the decodes are taken off.
            running: the running sequences.
            decode_ms: predicted milliseconds of the decodes among them.
            first: whose prompt is served first.
        """
        ms_per_step = budget.step_time.ms_per_step
        num_decoding = sum(s.num_pending_tokens == 1 for s in running)
        if num_decoding == 0:
            if self.shares.is_shared and ms_per_step > 0:
                budget.ms = (PASSES_WITHOUT_DECODES - 1) * ms_per_step
            return
        alone = ms_per_step + decode_ms
        num_behind = len(running) - num_decoding + self.line.num_ready
        budget.ms = (stretch(num_decoding, num_behind) - 1) * alone
        if self.shares.num_busy > 1 and self.shares.is_owed(first.request.key):
            budget.owed_key = first.request.key
            budget.owed_ms = (OWED_STRETCH - 1) * alone

    def _share_behind(
        self, budget: Budget, behind: list[Sequence], ahead: Sequence
    ) -> dict[Sequence, int]:
        """Serve running sequences from what one in line, whose turn is before theirs, leaves."""
        start = ahead.num_tokens - self.line.num_uncached(ahead)
        size = budget.chunk(ahead, start, num_behind=len(behind), shortest=inf)
        if self.manager.spec.blocks_per_sequence(size) > self.manager.num_free_blocks:
            size = 0  # it will not get in: nothing is kept for it
        budget.spend(size, start)
        sizes = budget.share_out(behind)
        budget.give_back(size, start)
        return sizes
