"""Blocks on their way from the tier below into the pool, for a sequence that waits for them.

A load fills blocks of the pool that nobody else holds. When it is over they are cached like any
other and the sequence starts from the prefix that it then finds, however much of it came. Until
then the load holds them, and those of the pool that belong to the same prefix.

Not here: whether a load is worth its time (engine.scheduler), files and threads (disk).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from firstword.kvcache.block_pool import NO_BLOCK, BlockContent, BlockPool, common_prefix_length
from firstword.kvcache.prefix_cache import PrefixCache, PrefixHit, TokenSequence
from firstword.kvcache.spec import KVCacheSpec
from firstword.kvcache.tier import BlockName, BlockRead, BlockTier

MAX_TRIES = 2
"""Loads for one wait of a sequence: what fails twice is computed."""

_MAX_TAILS = 256
"""Kept blocks that a prompt's next tokens are compared with: half a millisecond."""

Missing = tuple[tuple[BlockName, tuple[int, ...]], ...]
"""Blocks to read, each with the KV groups in which it is wanted."""


def _num_pages(missing: Missing) -> int:
    return sum(len(groups) for _, groups in missing)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load would bring.

    Args:
        start: tokens of the prefix that are in the pool.
        num_tokens: tokens of the prefix that would be there after it.
        missing: blocks to read, and the KV groups in which the pool lacks them.
        present: blocks of the pool that belong to the prefix.
        num_taken: free blocks of the pool that it fills, or holds meanwhile.
        chain: keys of all its full blocks from `start` on.
    """

    start: int
    num_tokens: int
    missing: Missing
    present: tuple[int, ...]
    num_taken: int
    chain: tuple[bytes, ...]

    @property
    def num_pages(self) -> int:
        """Blocks of the pool that it fills."""
        return _num_pages(self.missing)


@dataclass(eq=False)
class Load:
    """A load under way: in `InFlightBlocks` it is the author of its blocks.

    Args:
        sequence: whose prefix it is.
        reads: what is read, in order.
        present: blocks of the pool that it holds besides.
    """

    sequence: TokenSequence
    reads: tuple[BlockRead, ...]
    present: tuple[int, ...]

    def references(self) -> list[int]:
        """Every block that it holds, the first of the chain last."""
        read = [block for read in self.reads for _, block in read.pages]
        return [*reversed(read), *reversed(self.present)]


class Loads:
    """All loads under way over one pool.

    Args:
        spec: the KV groups, none of which holds states.
        pool: the blocks.
        prefix_cache: names blocks and finds them in the pool.
        tier: has the blocks that the pool lacks.
    """

    def __init__(
        self, spec: KVCacheSpec, pool: BlockPool, prefix_cache: PrefixCache, tier: BlockTier
    ) -> None:
        self._spec, self._pool, self._cache, self._tier = spec, pool, prefix_cache, tier
        self._full = [i for i, group in enumerate(spec.groups) if group.kind == "full"]
        self._under_way: dict[int, Load] = {}
        self._tries: dict[TokenSequence, int] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._under_way)

    def is_loading(self, sequence: TokenSequence) -> bool:
        """Whether a load for that sequence is under way."""
        return any(load.sequence is sequence for load in self._under_way.values())

    @property
    def references(self) -> list[int]:
        """Every block held, once for each reference."""
        return [block for load in self._under_way.values() for block in load.references()]

    # -- What there would be to load --------------------------------------------------------------

    def plan(self, sequence: TokenSequence, hit: PrefixHit, num_free: int) -> LoadPlan | None:
        """Find out what a load would add to the prefix that is in the pool.

        Args:
            sequence: which waits.
            hit: what the pool has.
            num_free: blocks of the pool that it may fill.

        Returns:
            None where the tier has no more than the pool, or was tried in vain.
        """
        if self._tries.get(sequence, 0) >= MAX_TRIES:
            return None
        num_blocks = self._num_reachable(sequence, self._most_blocks(hit, num_free))
        names = [self._cache.name(sequence, index) for index in range(num_blocks)]
        tail, num_shared = self._best_tail(sequence, num_blocks)
        num_tokens = num_blocks * self._spec.block_size + num_shared
        if num_tokens <= hit.num_tokens:
            return None
        if tail is not None:
            names.append(tail)
        missing, present = self._sort_out(names, num_tokens)
        first = hit.num_tokens // self._spec.block_size
        chain = tuple(name.key for name in names[first:num_blocks])
        num_taken = _num_pages(missing) + self._num_free_of(present)
        if num_taken > num_free:
            return None
        return LoadPlan(hit.num_tokens, num_tokens, missing, present, num_taken, chain)

    def _most_blocks(self, hit: PrefixHit, num_free: int) -> int:
        """Blocks of a prefix that would fit: full groups grow with it, windows do not."""
        size = self._spec.block_size
        windows = sum(-(-g.window // size) + 1 for g in self._spec.groups if g.window)
        num_free -= windows + len(self._spec.groups)
        num_free -= self._num_free_of(block for blocks in hit.blocks for block in blocks)
        return hit.num_tokens // size + max(num_free, 0) // max(len(self._full), 1)

    def _num_free_of(self, blocks: Iterable[int]) -> int:
        """How many of these blocks count as free until the load holds them."""
        return sum(b != NO_BLOCK and self._pool.ref_count(b) == 0 for b in blocks)

    def _num_reachable(self, sequence: TokenSequence, most: int) -> int:
        """Leading blocks of a sequence that pool and tier have together, in every group."""
        limit = (len(sequence.token_ids) - 1) // self._spec.block_size
        num_blocks = 0
        for index in range(min(limit, most)):
            if not self._has(sequence, index, self._full):
                break
            num_blocks = index + 1
        while num_blocks:
            gap = self._last_gap(sequence, num_blocks)
            if gap is None:
                return num_blocks
            num_blocks = gap  # any longer prefix, but for its last few blocks, needs that block
        return 0

    def _last_gap(self, sequence: TokenSequence, num_blocks: int) -> int | None:
        """The last block that a window at the end of `num_blocks` needs and nobody has."""
        size = self._spec.block_size
        gaps = []
        for i, group in enumerate(self._spec.groups):
            first = group.first_needed(num_blocks * size) // size if group.window else num_blocks
            for index in range(num_blocks - 1, first - 1, -1):
                if not self._has(sequence, index, [i]):
                    gaps.append(index)
                    break
        return max(gaps, default=None)

    def _has(self, sequence: TokenSequence, index: int, groups: Sequence[int]) -> bool:
        """Whether the tier has a block, or the pool has it in all these groups."""
        name = self._cache.name(sequence, index)
        if self._tier.holds(name.key, name.token_ids):
            return True
        return all(self._pool.lookup(g, name.key, name.token_ids) != NO_BLOCK for g in groups)

    def _best_tail(self, sequence: TokenSequence, num_blocks: int) -> tuple[BlockName | None, int]:
        """A block of the tier that begins as the sequence goes on; and how much they share."""
        size = self._spec.block_size
        first = num_blocks * size
        wanted = tuple(sequence.token_ids[first : min(first + size, len(sequence.token_ids) - 1)])
        parent = self._cache.key(sequence, num_blocks - 1)
        best: tuple[int, ...] = ()
        num_shared = 0
        for token_ids in self._tier.children(parent, _MAX_TAILS):
            length = common_prefix_length(token_ids, wanted)
            if length > num_shared:
                best, num_shared = token_ids, length
        in_pool = min(
            self._pool.longest_common_prefix(i, parent, wanted)[1]
            for i in range(len(self._spec.groups))
        )
        if num_shared <= in_pool:
            return None, in_pool
        return BlockName.of(parent, best), num_shared

    def _sort_out(self, names: list[BlockName], num_tokens: int) -> tuple[Missing, tuple[int, ...]]:
        """Which blocks have to be read in which groups, and which the pool has."""
        size = self._spec.block_size
        first_needed = [g.first_needed(num_tokens) // size for g in self._spec.groups]
        missing: list[tuple[BlockName, tuple[int, ...]]] = []
        present: list[int] = []
        for index, name in enumerate(names):
            groups = [i for i, first in enumerate(first_needed) if index >= first]
            found = {g: self._pool.lookup(g, name.key, name.token_ids) for g in groups}
            present += [block for block in found.values() if block != NO_BLOCK]
            lacking = tuple(g for g, block in found.items() if block == NO_BLOCK)
            if lacking:
                missing.append((name, lacking))
        return tuple(missing), tuple(present)

    # -- Loads come and go ------------------------------------------------------------------------

    def begin(self, sequence: TokenSequence, plan: LoadPlan) -> Load:
        """Begin a load; the pool must have as many free blocks as it fills."""
        for block in plan.present:
            self._pool.retain(block)
        reads = tuple(
            BlockRead(name, tuple((group, self._pool.allocate()) for group in groups))
            for name, groups in plan.missing
        )
        load = Load(sequence, reads, plan.present)
        number = next(self._numbers)
        self._under_way[number] = load
        self._tries[sequence] = self._tries.get(sequence, 0) + 1
        self._tier.load(number, reads)
        return load

    def take_in(self) -> list[Load]:
        """Cache what loads have brought, and let go of its blocks.

        Returns:
            The loads that have ended.
        """
        ended = []
        for number, num_reads in self._tier.finished_loads():
            load = self._under_way.pop(number)
            for read in load.reads[:num_reads]:
                name = read.name
                for group, block in read.pages:
                    content = BlockContent(group, name.parent, name.token_ids, name.key)
                    self._pool.cache(block, content)
            for block in load.references():
                self._pool.release(block)
            ended.append(load)
        return ended

    def forget(self, sequence: TokenSequence) -> None:
        """A sequence waits no more: a load under way for it still runs to its end."""
        self._tries.pop(sequence, None)
