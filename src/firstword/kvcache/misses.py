"""Why a prompt was not reused further than it was: what is kept, or was, where its hit ends.

Not here: how far it is reused (prefix_cache), and a miss in words (trace.misses).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice

from firstword.kvcache.block_pool import NO_BLOCK, BlockPool, block_key, common_prefix_length
from firstword.kvcache.prefix_cache import PrefixCache, PrefixHit, TokenSequence
from firstword.kvcache.sources import CacheMiss, MissCause
from firstword.kvcache.spec import KVCacheSpec
from firstword.kvcache.tier import BlockIndex

NUM_TOKENS_SHOWN = 8
"""Tokens of either side that a miss tells."""

_MAX_COMPARED = 1024
"""Texts that a prompt is compared with: enough to find the nearest, few enough for a step."""


class MissFinder:
    """Looks at what is known of the first block that a prompt could not reuse.

    Blocks are named by all the text before them, so the nearest cached text is among those that
    follow on the last block reused, and text under another salt is never seen.

    Args:
        spec: the groups.
        pool: what is cached, and what was evicted.
        prefix_cache: names the blocks of a sequence.
        below: the store below the pool; None where there is none.
    """

    def __init__(
        self,
        spec: KVCacheSpec,
        pool: BlockPool,
        prefix_cache: PrefixCache,
        below: BlockIndex | None = None,
    ) -> None:
        self.below = below
        self._block_size = spec.block_size
        self._pool, self._prefix_cache = pool, prefix_cache
        paged = {i: group for i, group in enumerate(spec.groups) if group.kind != "state"}
        self._full = [i for i, group in paged.items() if group.kind == "full"]
        self._sliding = [i for i, group in paged.items() if group.kind == "sliding"]
        self._has_states = len(paged) < len(spec.groups)

    def find(
        self, sequence: TokenSequence, hit: PrefixHit, running: Iterable[TokenSequence] = ()
    ) -> CacheMiss | None:
        """Find out why a prompt is reused as far as `hit` and no further; nothing changes.

        Args:
            sequence: it has produced nothing yet, and holds no blocks.
            hit: what it reuses.
            running: sequences whose last block is not cached yet.

        Returns:
            None where there was nothing more to reuse.
        """
        if hit.num_tokens >= len(sequence.token_ids) - 1:
            return None
        index, end = hit.num_tokens // self._block_size, len(sequence.token_ids) // self._block_size
        parent, *keys = self._prefix_cache.block_keys(sequence, index - 1, end)
        return self._lost(sequence, hit, keys) or self._compared(sequence, hit, parent, running)

    # -- Whole blocks that are, or were, kept ----------------------------------------------------

    def _lost(self, sequence: TokenSequence, hit: PrefixHit, keys: list[bytes]) -> CacheMiss | None:
        """The miss where the next blocks are known.

        Args:
            sequence: whose.
            hit: what it reuses.
            keys: names of its full blocks from the one in which the hit ends.
        """
        limit = len(sequence.token_ids) - 1  # the last token is computed whatever is kept
        first = end = hit.num_tokens // self._block_size
        cause: MissCause | None = None
        for key in keys:
            fate = self._fate(sequence, end, key)
            if fate is None:
                break
            cause, end = cause or fate, end + 1
        if cause is None:
            if first > 0 or not keys or not self._is_known_elsewhere(sequence):
                return None
            return _miss("other_settings", sequence, hit.num_tokens, limit)
        miss = _miss(cause, sequence, hit.num_tokens, min(end * self._block_size, limit))
        if cause == "evicted" and self._sliding:
            held = self._are_cached(self._full, keys[0], self._block_tokens(sequence, first))
            return replace(miss, of_window=bool(self._full) and held)
        return miss

    def _fate(self, sequence: TokenSequence, index: int, key: bytes) -> MissCause | None:
        """Why a block that is, or was, kept is not reused; None where it is not known at all."""
        below, token_ids = self.below, self._block_tokens(sequence, index)
        if below is not None and below.holds(key, token_ids):
            return "too_short"
        if self._full and self._are_cached(self._full, key, token_ids):
            # What else there is lacks: a window's blocks, a state, or room for all of it.
            whole = self._are_cached(self._sliding, key, token_ids)
            return "too_short" if whole and self._has_states else "evicted"
        departure = None if below is None else below.departure(key)
        return departure or ("evicted" if self._pool.was_evicted(key) else None)

    def _are_cached(self, groups: list[int], key: bytes, token_ids: tuple[int, ...]) -> bool:
        return all(self._pool.lookup(group, key, token_ids) != NO_BLOCK for group in groups)

    def _is_known_elsewhere(self, sequence: TokenSequence) -> bool:
        # Of what is kept elsewhere only text without a salt is known: a salt has no part in it.
        if self.below is None or sequence.salt:
            return False
        return self.below.known_elsewhere(self._block_tokens(sequence, 0))

    # -- Text --------------------------------------------------------------------------------------

    def _compared(
        self,
        sequence: TokenSequence,
        hit: PrefixHit,
        parent: bytes,
        running: Iterable[TokenSequence],
    ) -> CacheMiss | None:
        """The miss by comparison with the nearest text that follows on the block `parent`."""
        index = hit.num_tokens // self._block_size
        wanted = self._block_tokens(sequence, index)
        texts = chain(self._children(parent), self._unfinished(parent, index, running))
        nearest = _nearest(wanted, texts)
        shared = common_prefix_length(nearest, wanted)
        position = index * self._block_size + shared
        if shared < min(len(nearest), len(wanted)):
            cached = (*nearest[shared:], *self._following(parent, nearest))
            end = len(sequence.token_ids)
            return _miss("different_text", sequence, position, end, cached[:NUM_TOKENS_SHOWN])
        end = min(position, len(sequence.token_ids) - 1)
        if end <= hit.num_tokens:
            return None
        return _miss("too_short", sequence, hit.num_tokens, end)

    def _children(self, parent: bytes) -> Iterator[tuple[int, ...]]:
        """Texts of the cached blocks that follow on `parent`."""
        group = next(iter(self._full + self._sliding), None)
        cached = () if group is None else self._pool.children(group, parent)
        kept = () if self.below is None else self.below.children(parent, _MAX_COMPARED)
        return islice(chain(cached, kept), _MAX_COMPARED)

    def _unfinished(
        self, parent: bytes, index: int, running: Iterable[TokenSequence]
    ) -> Iterator[tuple[int, ...]]:
        """Texts of the blocks `index` that running sequences are filling, behind `parent`."""
        start = index * self._block_size
        for other in running:
            # The name of a block stands behind the root's.
            if other.block_keys[index : index + 1] == [parent]:
                end = min(start + self._block_size, other.num_computed_tokens)
                yield tuple(other.token_ids[start:end])

    def _following(self, parent: bytes, token_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Text that goes on behind a block of those tokens, where it is full."""
        if len(token_ids) < self._block_size:
            return ()
        return next(self._children(block_key(parent, token_ids)), ())

    def _block_tokens(self, sequence: TokenSequence, index: int) -> tuple[int, ...]:
        start = index * self._block_size
        return tuple(sequence.token_ids[start : start + self._block_size])


def _nearest(wanted: tuple[int, ...], texts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The text that shares the most; of equals the first that ends there: nothing is missed then.

    Returns:
        The text; empty where there is none.
    """

    def nearness(text: tuple[int, ...]) -> tuple[int, bool]:
        shared = common_prefix_length(text, wanted)
        return shared, shared == len(text)

    return max((text for text in texts if text), key=nearness, default=())


def _miss(
    cause: MissCause,
    sequence: TokenSequence,
    position: int,
    end: int,
    cached_token_ids: tuple[int, ...] = (),
) -> CacheMiss:
    """A miss of the positions `position` .. `end` - 1 of a prompt."""
    token_ids = tuple(sequence.token_ids[position : position + NUM_TOKENS_SHOWN])
    return CacheMiss(cause, position, end - position, token_ids, cached_token_ids)
