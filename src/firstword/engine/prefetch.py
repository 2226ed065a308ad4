"""Whether the beginning of a waiting sequence is loaded from the tier below or computed.

Not here: how it is loaded (kvcache.exchange).
"""

from __future__ import annotations

from dataclasses import dataclass

from firstword.engine.line import WaitingLine
from firstword.engine.request import Sequence
from firstword.engine.step import StepTime
from firstword.kvcache.exchange import Exchange
from firstword.kvcache.loads import LoadPlan
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.prefix_cache import PrefixHit


@dataclass(frozen=True)
class Prefetch:
    """Begins loads that take less time than computing the same.

    Args:
        manager: knows what is where.
        line: those who wait.
        max_num_tokens: positions in one step.
    """

    manager: KVCacheManager
    line: WaitingLine
    max_num_tokens: int

    def begin(
        self, sequence: Sequence, hit: PrefixHit, step_time: StepTime, num_running: int
    ) -> bool:
        """Begin to load what the pool lacks of a waiting sequence, if that pays.

        Args:
            sequence: whose turn it is.
            hit: what the pool has.
            step_time: predicts milliseconds.
            num_running: sequences that need blocks meanwhile.

        Returns:
            Whether it waits for a load now.
        """
        exchange = self.manager.exchange
        if exchange is None:
            return False
        plan = self._plan(exchange, sequence, hit, num_running)
        if plan is None:
            return False
        computing = step_time.predict(plan.num_tokens - plan.start, plan.start)
        if exchange.tier.load_ms(plan.num_pages) >= computing:
            return False
        exchange.begin_load(sequence, plan)
        self.line.await_load(sequence, plan.start)
        return True

    def _plan(
        self, exchange: Exchange, sequence: Sequence, hit: PrefixHit, num_running: int
    ) -> LoadPlan | None:
        """Plan a load that leaves room for the first chunk after it."""
        plan = exchange.plan_load(sequence, hit, self._num_spare(1, num_running))
        if plan is None:
            return None
        num_rest = min(sequence.num_tokens - plan.num_tokens, self.max_num_tokens)
        num_spare = self._num_spare(num_rest, num_running)
        if plan.num_taken + num_spare <= self.manager.num_free_blocks:
            return plan
        return exchange.plan_load(sequence, hit, num_spare)

    def _num_spare(self, num_tokens: int, num_running: int) -> int:
        """Blocks to leave alone: for the next `num_tokens` of the sequence, and for who runs."""
        spec = self.manager.spec
        num_blocks = -(-num_tokens // spec.block_size) + 1  # the last one may be a copy
        return (num_blocks + num_running) * len(spec.groups)
