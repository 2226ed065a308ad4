"""Finding and keeping what has been computed before, named by its tokens.

Not here: who holds which block (manager) and what is evicted when (block_pool).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from firstword.kvcache.block_pool import NO_BLOCK, BlockContent, BlockPool, block_key, root_key
from firstword.kvcache.spec import KVCacheSpec
from firstword.kvcache.tier import BlockName


class TokenSequence(Protocol):
    """What the manager needs to know of a sequence; it is told apart by identity."""

    block_keys: list[bytes]  # of its full blocks, filled by the manager, kept with the sequence

    @property
    def token_ids(self) -> Sequence[int]:
        """All tokens, prompt and output."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens whose keys and values are in its blocks."""

    @property
    def salt(self) -> str:
        """Sequences share blocks only with others of the same salt."""

    @property
    def is_kept(self) -> bool:
        """Its blocks may be kept below the pool."""


@dataclass(frozen=True, slots=True)
class PrefixHit:
    """The longest cached prefix of a sequence that is valid in every group.

    Args:
        num_tokens: positions that need not be computed.
        num_copied_tokens: how many of them lie in a block that is copied, not shared.
        blocks: per group, the blocks of positions 0 .. num_tokens - 1; NO_BLOCK where the group
            needs none any more. A state group has one entry, the state to copy.
    """

    num_tokens: int = 0
    num_copied_tokens: int = 0
    blocks: tuple[tuple[int, ...], ...] = ()


class PrefixCache:
    """The cached blocks of all groups, seen as prefixes of a sequence.

    Args:
        spec: the groups.
        pool: where the blocks are counted and indexed.
        extra_key: whatever else determines keys and values: model fingerprint, adapter.
    """

    def __init__(self, spec: KVCacheSpec, pool: BlockPool, extra_key: bytes = b"") -> None:
        self._groups = spec.groups
        self._block_size = spec.block_size
        self._pool = pool
        self._extra_key = extra_key

    def match(self, sequence: TokenSequence) -> PrefixHit:
        """Find the longest cached prefix of a sequence; nothing changes.

        At most all tokens but the last come from the cache: a logits row needs one computed.
        A full group needs every block from position 0, a sliding group those of its window, a
        state group the state at exactly that position.
        """
        limit = len(sequence.token_ids) - 1
        if limit < 1:
            return PrefixHit()
        deepest = min(self._num_full_matches(sequence, limit), (limit - 1) // self._block_size)
        for index in range(deepest, -1, -1):
            hit = self._match_ending_in(sequence, index, limit)
            if hit is not None:
                return hit
        return PrefixHit()

    def _num_full_matches(self, sequence: TokenSequence, limit: int) -> int:
        """Leading whole blocks within `limit` tokens that every full group has."""
        full = [i for i, group in enumerate(self._groups) if group.kind == "full"]
        for index in range(limit // self._block_size):
            if any(self.find_block(group, sequence, index) == NO_BLOCK for group in full):
                return index
        return limit // self._block_size

    def _match_ending_in(self, sequence: TokenSequence, index: int, limit: int) -> PrefixHit | None:
        """Find the longest hit whose last token lies in block `index`.

        The group that shares the fewest tokens of that block decides. Ending even earlier would
        ask a sliding group for still older blocks, so this is the only end worth a try.
        """
        size = self._block_size
        wanted = self._block_tokens(sequence, index)[: limit - index * size]
        parent = self.key(sequence, index - 1)
        best: dict[int, tuple[int, int]] = {}  # group -> block, tokens shared
        for i, group in enumerate(self._groups):
            if group.kind != "state":
                best[i] = self._pool.longest_common_prefix(i, parent, wanted)
                if best[i][1] == 0:
                    return None
        count = min((length for _, length in best.values()), default=len(wanted))
        end = index * size + count
        blocks: list[tuple[int, ...]] = []
        for i, group in enumerate(self._groups):
            if group.kind == "state":
                at_checkpoint = end % group.checkpoint_interval == 0
                held = [self.find_block(i, sequence, index)] if at_checkpoint else [NO_BLOCK]
                first = 0
            else:
                first = min(group.first_needed(end) // size, index)
                held = [self.find_block(i, sequence, j) for j in range(first, index)]
                held.append(best[i][0])
            if NO_BLOCK in held:
                return None
            blocks.append((NO_BLOCK,) * first + tuple(held))
        return PrefixHit(end, end % size, tuple(blocks))

    def name_blocks(self, sequence: TokenSequence) -> None:
        """Compute the keys of all full blocks of a sequence."""
        self.key(sequence, len(sequence.token_ids) // self._block_size - 1)

    def find_block(self, group: int, sequence: TokenSequence, index: int) -> int:
        """Find the full block `index` of a sequence in a group; NO_BLOCK if it is not cached."""
        key, token_ids = self.key(sequence, index), self._block_tokens(sequence, index)
        return self._pool.lookup(group, key, token_ids)

    def name(self, sequence: TokenSequence, index: int) -> BlockName:
        """Name of the full block `index` of a sequence."""
        key, parent = self.key(sequence, index), self.key(sequence, index - 1)
        return BlockName(key, parent, self._block_tokens(sequence, index))

    def keep_block(self, group: int, sequence: TokenSequence, index: int, block: int) -> None:
        """Let a block be found as the full block `index` of a sequence."""
        name = self.name(sequence, index)
        self._pool.cache(block, BlockContent(group, name.parent, name.token_ids, name.key))

    def keep_tail(self, group: int, sequence: TokenSequence, block: int) -> None:
        """Let the partly filled last block of a sequence be found."""
        index, count = divmod(sequence.num_computed_tokens, self._block_size)
        tokens = self._block_tokens(sequence, index)[:count]
        parent = self.key(sequence, index - 1)
        self._pool.cache(block, BlockContent(group, parent, tokens, None))

    def block_keys(self, sequence: TokenSequence, first: int, end: int) -> list[bytes]:
        """Names of the full blocks `first` .. `end` - 1 of a sequence; block -1 is the root."""
        if end <= first:
            return []
        self.key(sequence, end - 1)
        return sequence.block_keys[first + 1 : end + 1]

    def key(self, sequence: TokenSequence, index: int) -> bytes:
        """Key of the full block `index` of a sequence; of the root for -1."""
        keys = sequence.block_keys
        if not keys:
            keys.append(root_key(self._extra_key, sequence.salt))
        while len(keys) < index + 2:
            keys.append(block_key(keys[-1], self._block_tokens(sequence, len(keys) - 1)))
        return keys[index + 1]

    def _block_tokens(self, sequence: TokenSequence, index: int) -> tuple[int, ...]:
        size = self._block_size
        return tuple(sequence.token_ids[index * size : (index + 1) * size])
