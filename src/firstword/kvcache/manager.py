"""Which blocks a sequence holds in every KV group, and which of them it need not compute.

Not here: who runs when (engine.scheduler) and the bytes of the blocks (storage).

One step, seen from here:

    match_prefix, admit     a sequence starts, from as many cached tokens as there are
    allocate                a running sequence gets room for the positions of the step
    step_copies             what the runner copies before anything is written
    end_step                the step ran
    commit                  full blocks are cached, blocks behind a window given back
    fork, free              a sequence is shared between samples, or ends

Two rules keep sharing safe. Only `commit` and `free` put anything in the cache, after the step
that wrote it. And a sequence writes only to blocks that it alone owns: where it starts inside a
block of another (a prefix hit or a fork) the last block of its table is *borrowed*, and its
first tokens are copied to a block of its own before it writes.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

from firstword.errors import CapacityError
from firstword.kvcache.block_pool import NO_BLOCK, BlockPool
from firstword.kvcache.exchange import Exchange
from firstword.kvcache.in_flight import Author, InFlightBlocks
from firstword.kvcache.misses import MissFinder
from firstword.kvcache.prefix_cache import PrefixCache, PrefixHit, TokenSequence
from firstword.kvcache.sources import CacheMiss
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.kvcache.tables import BlockCopy, BlockTable, Holding
from firstword.kvcache.tier import BlockTier


class KVCacheManager:
    """Block tables of all sequences over one pool of pages.

    A chunk that starts at position 0 of a state group starts from the zero state, whatever its
    block holds.

    Args:
        spec: the groups; their blocks are of one size.
        num_blocks: pages in the pool.
        enable_prefix_caching: keep the content of blocks and reuse it.
        extra_key: whatever else determines keys and values: model fingerprint, adapter.
        tier: keeps full blocks below the pool; None, and where a group holds states: nothing does.
    """

    def __init__(
        self,
        spec: KVCacheSpec,
        num_blocks: int,
        *,
        enable_prefix_caching: bool = True,
        extra_key: bytes = b"",
        tier: BlockTier | None = None,
    ) -> None:
        self.spec = spec
        self.pool = BlockPool(num_blocks)
        self.enable_prefix_caching = enable_prefix_caching
        self._prefix_cache = PrefixCache(spec, self.pool, extra_key)
        self._in_flight = InFlightBlocks()
        self._held: dict[TokenSequence, Holding] = {}
        self._copies: list[BlockCopy] = []
        tier = tier if enable_prefix_caching and not self.has_states else None
        self.misses = MissFinder(spec, self.pool, self._prefix_cache, tier)
        self.exchange: Exchange | None = None
        if tier is not None:
            self.exchange = Exchange(spec, self.pool, self._prefix_cache, self._in_flight, tier)

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that no sequence holds."""
        return self.pool.num_free

    @cached_property
    def has_states(self) -> bool:
        """Whether a group holds a running state, which each step changes in place."""
        return any(group.kind == "state" for group in self.spec.groups)

    @property
    def usage(self) -> float:
        """Share of the blocks that sequences hold, 0 to 1."""
        return 1 - self.pool.num_free / self.num_blocks if self.num_blocks else 0.0

    @property
    def holders(self) -> set[TokenSequence]:
        """Sequences that hold blocks."""
        return set(self._held)

    def match_prefix(self, sequence: TokenSequence) -> PrefixHit:
        """Find the longest cached prefix of a sequence, one token short of it; nothing changes."""
        return self._prefix_cache.match(sequence) if self.enable_prefix_caching else PrefixHit()

    def explain_miss(self, sequence: TokenSequence, hit: PrefixHit) -> CacheMiss | None:
        """Find out why a sequence that is about to start reuses no more than `hit`; see misses."""
        if not self.enable_prefix_caching:
            return None
        return self.misses.find(sequence, hit, self._held)

    def awaited_block(self, sequence: TokenSequence) -> tuple[bytes, int] | None:
        """Name the last block beyond what is cached that another computes, or a load brings.

        It is worth waiting for as long as it has an `author`: the same would be computed twice.

        Returns:
            Its key, and the number of tokens that are cached; None where there is no such block.
        """
        if not len(self._in_flight):
            return None
        hit = self.match_prefix(sequence)
        first, end = hit.num_tokens // self._block_size, len(sequence.token_ids) // self._block_size
        keys = self._prefix_cache.block_keys(sequence, first, end)
        last = self._in_flight.last_of_chain(keys)
        return None if last is None else (last, hit.num_tokens)

    def author(self, key: bytes) -> Author | None:
        """Who is computing or loading the block of that name; None if nobody is."""
        return self._in_flight.author(key)

    def name_blocks(self, sequence: TokenSequence) -> None:
        """Compute the keys of a sequence's full blocks, which are kept with it.

        They are computed when first needed otherwise; any thread may do it before.
        """
        if self.enable_prefix_caching:
            self._prefix_cache.name_blocks(sequence)

    def check_capacity(self, num_tokens: int, num_new_tokens: int) -> None:
        """Refuse a sequence that the pool could not hold even alone.

        Args:
            num_tokens: the length it may reach.
            num_new_tokens: most positions computed in one step.

        Raises:
            CapacityError: with the blocks it needs and those there are.
        """
        needed = self.spec.blocks_per_sequence(num_tokens, min(num_new_tokens, num_tokens))
        if needed > self.num_blocks:
            raise CapacityError(
                f"a sequence of up to {num_tokens} tokens needs {needed} KV blocks, but the pool "
                f"has {self.num_blocks}: lower max_tokens or give the KV cache more memory"
            )

    # -- Holding blocks -------------------------------------------------------------------------

    def admit(self, sequence: TokenSequence, num_new_tokens: int, hit: PrefixHit) -> bool:
        """Take the blocks of `hit` and those of `num_new_tokens` positions after it.

        Returns:
            False where there are too few free blocks; nothing is held then.
        """
        assert sequence not in self._held
        blocks = hit.blocks or ((),) * len(self.spec.groups)
        tables = []
        for group, shared in zip(self.spec.groups, blocks, strict=True):
            for block in shared:
                if block != NO_BLOCK:
                    self.pool.retain(block)
            borrowed = hit.num_copied_tokens > 0 if group.kind != "state" else bool(shared)
            tables.append(BlockTable(list(shared), borrowed))
        held = Holding(tuple(tables), hit.num_tokens // self._block_size)
        if not self._extend(held, hit.num_tokens, num_new_tokens):
            self._release(held)
            return False
        self._held[sequence] = held
        if self.exchange is not None:  # they may be of a sequence that was not to be kept
            self.exchange.offer(sequence, 0, held.num_full_blocks)
        if self.enable_prefix_caching:
            first, end = held.num_full_blocks, len(sequence.token_ids) // self._block_size
            self._in_flight.announce(sequence, self._prefix_cache.block_keys(sequence, first, end))
        return True

    def allocate(
        self, sequence: TokenSequence, num_new_tokens: int, start: int | None = None
    ) -> bool:
        """Make room for the next `num_new_tokens` positions of a running sequence.

        Args:
            sequence: which holds blocks already.
            num_new_tokens: how many.
            start: the first of them; None for the first that is not computed yet.

        Returns:
            False where there are too few free blocks; nothing changes then.
        """
        held = self._held[sequence]
        start = sequence.num_computed_tokens if start is None else start
        if not self._extend(held, start, num_new_tokens):
            return False
        if self.has_states:
            self._take_snapshots(sequence, held)
        return True

    def _extend(self, held: Holding, start: int, num_new_tokens: int) -> bool:
        num_blocks = -(-(start + num_new_tokens) // self._block_size)
        missing = []
        for group, table in zip(self.spec.groups, held.tables, strict=True):
            wanted = 1 if group.kind == "state" else num_blocks
            missing.append(max(0, wanted - len(table.blocks)))
        if sum(missing) + sum(table.borrowed for table in held.tables) > self.pool.num_free:
            return False
        for i, table in enumerate(held.tables):
            if table.borrowed:
                self._own_last_block(i, table, start)
            table.blocks += [self.pool.allocate() for _ in range(missing[i])]
        return True

    def _own_last_block(self, group: int, table: BlockTable, start: int) -> None:
        """Copy a borrowed block; the copy inherits the table's reference to the source."""
        whole = self.spec.groups[group].kind == "state"
        count = self._block_size if whole else start % self._block_size
        copy = BlockCopy(table.blocks[-1], self.pool.allocate(), count, group)
        self._copies.append(copy)
        table.blocks[-1] = copy.destination
        table.borrowed = False

    def _take_snapshots(self, sequence: TokenSequence, held: Holding) -> None:
        """Keep the state at a checkpoint before the step moves it on, if a block is free."""
        position = sequence.num_computed_tokens
        last = position // self._block_size - 1
        for i, group in enumerate(self.spec.groups):
            if not self._is_checkpoint(group, position) or self.pool.num_free == 0:
                continue
            state = held.tables[i].blocks[0]
            if any(copy.destination == state for copy in self._copies):
                continue  # a fork of the state, which its owner or the cache keeps
            if self._prefix_cache.find_block(i, sequence, last) != NO_BLOCK:
                continue
            copy = BlockCopy(state, self.pool.allocate(), self._block_size, i)
            self.pool.retain(state)
            self._copies.append(copy)
            held.snapshots.append((i, last, copy.destination))

    def _is_checkpoint(self, group: KVGroup, position: int) -> bool:
        if group.kind != "state" or not self.enable_prefix_caching:
            return False
        return position > 0 and position % group.checkpoint_interval == 0

    def chunk_limit(self, start: int) -> int | None:
        """Most tokens of a chunk from position `start`: it must end at the next checkpoint.

        Returns:
            None where no group keeps checkpoints.
        """
        if not self.enable_prefix_caching:
            return None
        intervals = [g.checkpoint_interval for g in self.spec.groups if g.kind == "state"]
        return min((interval - start % interval for interval in intervals), default=None)

    def block_tables(self, sequence: TokenSequence) -> tuple[tuple[int, ...], ...]:
        """Blocks of a sequence per group.

        Entry i is the block of positions i * block_size .. (i + 1) * block_size - 1, NO_BLOCK
        where nothing is held; a state group has one entry, the running state.
        """
        return tuple(tuple(table.blocks) for table in self._held[sequence].tables)

    @property
    def step_copies(self) -> tuple[BlockCopy, ...]:
        """Copies to run at the start of the step, before anything is written."""
        return tuple(self._copies)

    @property
    def changed_in_step(self) -> set[TokenSequence]:
        """Sequences that a step broken off leaves without what they had before it.

        A block of theirs was to be filled by a copy, or they have a state, which a step overwrites.
        """
        if self.has_states:
            return set(self._held)
        if not self._copies:
            return set()
        copied = {copy.destination for copy in self._copies}
        return {s for s, held in self._held.items() if not copied.isdisjoint(held.references())}

    # -- After a step ---------------------------------------------------------------------------

    def end_step(self) -> None:
        """Let go of the sources of the copies: the step is over, whether it ran or failed."""
        for copy in self._copies:
            self.pool.release(copy.source)
        self._copies.clear()

    def commit(self, sequence: TokenSequence) -> None:
        """Cache the blocks that a step has filled, and give back those behind a window.

        The sequence's `num_computed_tokens` already counts the step.
        """
        held = self._held[sequence]
        num_full = sequence.num_computed_tokens // self._block_size
        for i, group in enumerate(self.spec.groups):
            if group.kind != "state" and self.enable_prefix_caching:
                for index in range(held.num_full_blocks, num_full):
                    self._prefix_cache.keep_block(i, sequence, index, held.tables[i].blocks[index])
        if num_full > held.num_full_blocks:
            self._in_flight.filled(sequence, num_full - held.num_full_blocks)
            if self.exchange is not None:
                self.exchange.offer(sequence, held.num_full_blocks, num_full)
        held.num_full_blocks = num_full
        for i, index, block in held.snapshots:
            self._prefix_cache.keep_block(i, sequence, index, block)
            self.pool.release(block)
        held.snapshots.clear()
        self._free_behind_window(held, sequence.num_computed_tokens)

    def _free_behind_window(self, held: Holding, num_computed_tokens: int) -> None:
        for group, table in zip(self.spec.groups, held.tables, strict=True):
            if group.kind != "sliding":
                continue
            first = group.first_needed(num_computed_tokens) // self._block_size
            for index in range(min(first, len(table.blocks)) - 1, -1, -1):
                if table.blocks[index] == NO_BLOCK:
                    break
                self.pool.release(table.blocks[index])
                table.blocks[index] = NO_BLOCK

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        """Let `child`, with the same computed tokens, share all blocks of `parent`.

        Full blocks are shared for good. The partly filled last one and the running state are
        borrowed: the child copies them when it first gets room to write, which must be no later
        than the parent's next step. This takes no free block, so it cannot fail.
        """
        source = self._held[parent]
        inside = parent.num_computed_tokens % self._block_size > 0
        tables = []
        for group, table in zip(self.spec.groups, source.tables, strict=True):
            for block in table.blocks:
                if block != NO_BLOCK:
                    self.pool.retain(block)
            tables.append(BlockTable(list(table.blocks), inside or group.kind == "state"))
        self._held[child] = Holding(tuple(tables), source.num_full_blocks)

    def free(self, sequence: TokenSequence, *, keep_tail: bool = True) -> None:
        """Give back all blocks of a sequence; their content stays cached until evicted.

        Args:
            sequence: it need not hold anything.
            keep_tail: cache its partly filled last block (and its state, where that is at a
                checkpoint) as well, so that a next turn reuses it to the token.
        """
        held = self._held.pop(sequence, None)
        if held is None:
            return
        self._in_flight.withdraw(sequence)
        if keep_tail and self.enable_prefix_caching:
            self._cache_tail(sequence, held)
        self._release(held)

    def _cache_tail(self, sequence: TokenSequence, held: Holding) -> None:
        index, count = divmod(sequence.num_computed_tokens, self._block_size)
        for i, (group, table) in enumerate(zip(self.spec.groups, held.tables, strict=True)):
            if table.borrowed:
                continue  # it belongs to the cache or to another sequence
            if self._is_checkpoint(group, sequence.num_computed_tokens):
                self._prefix_cache.keep_block(i, sequence, index - 1, table.blocks[0])
            elif group.kind != "state" and count > 0:
                self._prefix_cache.keep_tail(i, sequence, table.blocks[index])

    def _release(self, held: Holding) -> None:
        for block in held.references():
            self.pool.release(block)

    # -- Checks ---------------------------------------------------------------------------------

    @property
    def _block_size(self) -> int:
        return self.spec.block_size

    def check_invariants(self) -> None:
        """Check that every block is accounted for and none can be written by two.

        Raises:
            AssertionError: with the block at fault.
        """
        references = [block for held in self._held.values() for block in held.references()]
        references += [copy.source for copy in self._copies]
        references += self.exchange.references if self.exchange is not None else []
        self.pool.check_invariants(references)
        destinations = [copy.destination for copy in self._copies]
        assert len(destinations) == len(set(destinations)), "a block is the target of two copies"
        assert not set(destinations) & {copy.source for copy in self._copies}
        writers = Counter(block for held in self._held.values() for block in self._writable(held))
        for block, count in writers.items():
            assert count == 1, f"block {block} can be written by {count} sequences"
            assert not self.pool.is_cached(block), f"block {block} is cached but can be written"

    def _writable(self, held: Holding) -> list[int]:
        """Blocks that the sequence may write to in this step or the next."""
        blocks: list[int] = []
        for group, table in zip(self.spec.groups, held.tables, strict=True):
            first = 0 if group.kind == "state" else held.num_full_blocks
            blocks += table.blocks[first : len(table.blocks) - table.borrowed]
        return blocks
