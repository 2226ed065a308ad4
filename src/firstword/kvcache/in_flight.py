"""Which blocks are being computed right now, so that nobody computes them a second time.

Not here: blocks whose content is there already (prefix_cache), and who waits (engine.scheduler).
"""

from __future__ import annotations

from collections.abc import Sequence

from firstword.kvcache.prefix_cache import TokenSequence


class InFlightBlocks:
    """The full blocks that sequences holding blocks have announced and not filled yet.

    Blocks are named by their keys (block_pool.block_key): one that is announced stands for all
    that is before it as well.
    """

    def __init__(self) -> None:
        self._authors: dict[bytes, TokenSequence] = {}
        self._announced: dict[TokenSequence, Sequence[bytes]] = {}

    def __len__(self) -> int:
        return len(self._authors)

    def announce(self, sequence: TokenSequence, keys: Sequence[bytes]) -> None:
        """Note that a sequence will fill blocks.

        Args:
            sequence: who computes; it has announced nothing.
            keys: names of the blocks, in their order. Those that another has announced before
                stay its own.
        """
        if keys:
            self._announced[sequence] = keys
        for key in keys:
            self._authors.setdefault(key, sequence)

    def filled(self, sequence: TokenSequence, num_blocks: int) -> None:
        """Forget the next `num_blocks` blocks of a sequence: they are there now."""
        keys = self._announced.get(sequence)
        if keys is None:
            return
        self._forget(sequence, keys[:num_blocks])
        self._announced[sequence] = keys[num_blocks:]
        if len(keys) <= num_blocks:
            del self._announced[sequence]

    def withdraw(self, sequence: TokenSequence) -> None:
        """Forget all that a sequence has announced: it will not fill them."""
        self._forget(sequence, self._announced.pop(sequence, ()))

    def author(self, key: bytes) -> TokenSequence | None:
        """Who computes the block of that name; None if nobody does."""
        return self._authors.get(key)

    def last_of_chain(self, keys: Sequence[bytes]) -> bytes | None:
        """The last of the blocks named that is announced with all those before it; None for none.

        Args:
            keys: names of blocks that follow each other.
        """
        last = None
        for key in keys:
            if key not in self._authors:
                break
            last = key
        return last

    def _forget(self, sequence: TokenSequence, keys: Sequence[bytes]) -> None:
        for key in keys:
            if self._authors.get(key) is sequence:
                del self._authors[key]
