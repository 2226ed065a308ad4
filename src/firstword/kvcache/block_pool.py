"""The pool of equal KV pages: who refers to each block, and what old content can be found again.

Not here: sequences and the rules of each group (manager), and the bytes themselves (storage).

    allocate()            release() of the last reference
    blank ──────> in use ──────────────────────────────> blank       nothing worth keeping in it
                    ^  └───────────────────────────────> evictable   its content is cached
                    └───────────── retain() ────────────────┘ └────> taken by allocate(), oldest
                                                                     first, when no blank is left
"""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

NO_BLOCK = -1
"""Entry of a block table where a sequence holds no block: given back, or never needed."""

NUM_REMEMBERED = 32_768
"""Names of evicted blocks that are remembered, for explanations: of a million tokens, in 5 MB."""


def block_key(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Name the content of a full block by everything that determines it.

    Args:
        parent: key of the block before it; of the root where it is a sequence's first.
        token_ids: the tokens of the block, each in 0 .. 2**32 - 1.

    Returns:
        16 bytes, blake2b-128 (RFC 7693), the same on every machine.
    """
    packed = struct.pack(f"<{len(token_ids)}I", *token_ids)
    return blake2b(parent + packed, digest_size=16).digest()


def root_key(extra_key: bytes, salt: str = "") -> bytes:
    """Name what comes before a sequence's first block.

    Args:
        extra_key: whatever determines keys and values besides tokens: model fingerprint, adapter.
        salt: of those who share blocks; any text that a client sends.

    Returns:
        16 bytes, as of `block_key`.
    """
    return block_key(block_key(extra_key, ()) + salt.encode("utf-8", "surrogatepass"), ())


def common_prefix_length(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Number of leading tokens that `a` and `b` share."""
    length = min(len(a), len(b))
    if a[:length] == b[:length]:  # one fast comparison settles the usual case
        return length
    return next((i for i in range(length) if a[i] != b[i]), length)


@dataclass(frozen=True, slots=True)
class BlockContent:
    """What a cached block holds.

    Args:
        group: index of the KV group whose keys and values (or state) these are.
        parent: key of the block before it.
        token_ids: tokens whose keys and values are there, from slot 0 on.
        key: `block_key(parent, token_ids)` of a full block; None where it is partly filled.
    """

    group: int
    parent: bytes
    token_ids: tuple[int, ...]
    key: bytes | None


class BlockPool:
    """Reference counts of `num_blocks` blocks, and the index of their cached content.

    A block whose last reference goes stays findable until its page is needed. Content is named
    by its tokens and all before them, never by the number of a parent block: when a parent is
    evicted its children stay correct, are merely out of reach, and can be reached again once the
    same parent has been computed anew. LRU order removes them if nobody does.

    Args:
        num_blocks: pages in the pool, numbered 0 .. num_blocks - 1.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.num_evicted = 0
        self._ref_counts = [0] * num_blocks
        self._blank = list(range(num_blocks - 1, -1, -1))
        self._evictable: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._contents: dict[int, BlockContent] = {}
        self._index: dict[tuple[int, bytes], int] = {}  # (group, key) -> full block
        self._children: dict[tuple[int, bytes], dict[int, None]] = {}  # (group, parent) -> blocks
        self._evicted: OrderedDict[bytes, None] = OrderedDict()  # keys, the oldest first

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can still hand out, evictable ones included."""
        return len(self._blank) + len(self._evictable)

    def ref_count(self, block: int) -> int:
        """References to `block`; 0 means free."""
        return self._ref_counts[block]

    def is_cached(self, block: int) -> bool:
        """Whether `block` can be found by its content."""
        return block in self._contents

    def allocate(self) -> int:
        """Hand out a block with one reference; there must be a free one.

        Blocks without cached content go first, then the least recently used one is evicted.
        """
        if self._blank:
            block = self._blank.pop()
        else:
            block, _ = self._evictable.popitem(last=False)
            self._forget(block)
            self.num_evicted += 1
        self._ref_counts[block] = 1
        return block

    def retain(self, block: int) -> None:
        """Add a reference to a block in use or cached."""
        if self._ref_counts[block] == 0:
            del self._evictable[block]
        self._ref_counts[block] += 1

    def release(self, block: int) -> None:
        """Give back one reference. Release the blocks of a chain last one first.

        A chain is then evicted from its tail, and what is left of it stays a usable prefix.
        """
        assert self._ref_counts[block] > 0, f"block {block} was freed twice"
        self._ref_counts[block] -= 1
        if self._ref_counts[block] == 0:
            if block in self._contents:
                self._evictable[block] = None
            else:
                self._blank.append(block)

    def cache(self, block: int, content: BlockContent) -> bool:
        """Let a block in use be found by its content, from now until it is evicted.

        Returns:
            False where the same content is already cached in another block; nothing changes.
        """
        assert self._ref_counts[block] > 0, f"block {block} is cached but not in use"
        assert block not in self._contents, f"block {block} is cached twice"
        if content.key is not None:
            if (content.group, content.key) in self._index:
                return False
            self._index[content.group, content.key] = block
            self._evicted.pop(content.key, None)
        else:
            _, length = self.longest_common_prefix(content.group, content.parent, content.token_ids)
            if length == len(content.token_ids):
                return False
        self._contents[block] = content
        self._children.setdefault((content.group, content.parent), {})[block] = None
        return True

    def lookup(self, group: int, key: bytes, token_ids: tuple[int, ...]) -> int:
        """Find the full block of that key.

        Returns:
            The block, or NO_BLOCK; also where the key is that of other tokens, however unlikely.
        """
        block = self._index.get((group, key), NO_BLOCK)
        if block != NO_BLOCK and self._contents[block].token_ids != token_ids:
            return NO_BLOCK
        return block

    def longest_common_prefix(
        self, group: int, parent: bytes, token_ids: tuple[int, ...]
    ) -> tuple[int, int]:
        """Find the cached child of `parent` that starts with the most of `token_ids`.

        Returns:
            (block, number of tokens shared), or (NO_BLOCK, 0) where not even the first agrees.
        """
        best, best_length = NO_BLOCK, 0
        for block in self._children.get((group, parent), ()):
            length = common_prefix_length(self._contents[block].token_ids, token_ids)
            if length > best_length:
                best, best_length = block, length
        return best, best_length

    def children(self, group: int, parent: bytes) -> Iterator[tuple[int, ...]]:
        """Tokens of the cached blocks that follow on the block `parent`."""
        for block in self._children.get((group, parent), ()):
            yield self._contents[block].token_ids

    def was_evicted(self, key: bytes) -> bool:
        """Whether a block of that key was evicted from any group, and not cached again since."""
        return key in self._evicted

    def _forget(self, block: int) -> None:
        """Drop a block from the index and from its parent's children."""
        content = self._contents.pop(block)
        if content.key is not None:
            del self._index[content.group, content.key]
            self._evicted[content.key] = None
            if len(self._evicted) > NUM_REMEMBERED:
                self._evicted.popitem(last=False)
        siblings = self._children[content.group, content.parent]
        del siblings[block]
        if not siblings:
            del self._children[content.group, content.parent]

    def check_invariants(self, references: Iterable[int]) -> None:
        """Compare every count with the references that exist.

        Args:
            references: one entry per reference that somebody holds.

        Raises:
            AssertionError: a block is leaked, freed twice, lost, or wrongly indexed.
        """
        expected = Counter(references)
        for block, count in enumerate(self._ref_counts):
            assert count == expected[block], (
                f"block {block} has {count} references, but {expected[block]} are held"
            )
        free = [*self._blank, *self._evictable]
        assert len(free) == len(set(free)), "a block is free twice"
        assert set(free) == {b for b, count in enumerate(self._ref_counts) if count == 0}
        assert not any(block in self._contents for block in self._blank), "a blank block is cached"
        assert all(block in self._contents for block in self._evictable)
        indexed = {b for b, content in self._contents.items() if content.key is not None}
        assert indexed == set(self._index.values()), "the index differs from the cached blocks"
        children = [b for blocks in self._children.values() for b in blocks]
        assert sorted(children) == sorted(self._contents), "a cached block is no parent's child"
