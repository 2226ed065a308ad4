"""What goes between the pool and the tier below it, in both directions.

Not here: when (engine), for whom (engine.scheduler), and what the tier is (tier).
"""

from __future__ import annotations

from firstword.kvcache.block_pool import BlockPool
from firstword.kvcache.in_flight import InFlightBlocks
from firstword.kvcache.loads import LoadPlan, Loads
from firstword.kvcache.prefix_cache import PrefixCache, PrefixHit, TokenSequence
from firstword.kvcache.spec import KVCacheSpec
from firstword.kvcache.tier import BlockTier
from firstword.kvcache.write_behind import WriteBehind


class Exchange:
    """Keeps full blocks of the pool in a tier, and loads them back for those who wait.

    Args:
        spec: the KV groups, none of which holds states.
        pool: the blocks.
        prefix_cache: names blocks and finds them in the pool.
        in_flight: told of the blocks that are being loaded.
        tier: where blocks are kept.
    """

    def __init__(
        self,
        spec: KVCacheSpec,
        pool: BlockPool,
        prefix_cache: PrefixCache,
        in_flight: InFlightBlocks,
        tier: BlockTier,
    ) -> None:
        self.tier = tier
        self._pool, self._prefix_cache, self._in_flight = pool, prefix_cache, in_flight
        self._loads = Loads(spec, pool, prefix_cache, tier)
        self._write_behind = WriteBehind(pool, len(spec.groups), tier)

    @property
    def has_unsaved_blocks(self) -> bool:
        """Whether blocks wait to be handed over."""
        return len(self._write_behind) > 0

    @property
    def is_loading(self) -> bool:
        """Whether blocks are being loaded."""
        return len(self._loads) > 0

    @property
    def references(self) -> list[int]:
        """Every block of the pool that loads hold, once for each reference."""
        return self._loads.references

    def take_in(self) -> None:
        """Cache what loads have brought."""
        for load in self._loads.take_in():
            self._in_flight.withdraw(load)

    def save(self) -> None:
        """Hand over what is to be kept, as much as the tier takes now."""
        self._write_behind.pump()

    def offer(self, sequence: TokenSequence, first: int, end: int) -> None:
        """Let the full blocks `first` .. `end` - 1 of a sequence be kept, if they may be."""
        if sequence.is_kept:
            for index in range(first, end):
                self._write_behind.offer(self._prefix_cache.name(sequence, index))

    def is_loading_for(self, sequence: TokenSequence) -> bool:
        """Whether blocks are being loaded for that sequence."""
        return self._loads.is_loading(sequence)

    def plan_load(self, sequence: TokenSequence, hit: PrefixHit, num_spare: int) -> LoadPlan | None:
        """Find out what the tier has of a waiting sequence beyond the pool; nothing changes.

        Args:
            sequence: which waits.
            hit: what the pool has.
            num_spare: free blocks that others may need meanwhile.

        Returns:
            None where there is nothing, or no room for it.
        """
        return self._loads.plan(sequence, hit, self._pool.num_free - num_spare)

    def begin_load(self, sequence: TokenSequence, plan: LoadPlan) -> None:
        """Load what was planned; the sequence must not start while it is loaded for."""
        self._in_flight.announce(self._loads.begin(sequence, plan), plan.chain)

    def forget(self, sequence: TokenSequence) -> None:
        """A sequence waits no more; what is being loaded for it comes all the same."""
        self._loads.forget(sequence)
