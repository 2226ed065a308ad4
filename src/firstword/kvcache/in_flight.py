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
        self._announced: dict[TokenSequence, tuple[int, Sequence[bytes]]] = {}

    def __len__(self) -> int:
        return len(self._authors)

    def announce(self, sequence: TokenSequence, first: int, keys: Sequence[bytes]) -> None:
        """Note that a sequence will fill its blocks from index `first` on.

        Args:
            sequence: who computes; it has announced nothing.
            first: index of the first block.
            keys: the names of that block and those after it. Blocks that another has announced
                before stay its own.
        """
        self._announced[sequence] = (first, keys)
        for key in keys:
            self._authors.setdefault(key, sequence)

    def filled(self, sequence: TokenSequence, num_full_blocks: int) -> None:
        """Forget the blocks that a sequence has filled: its leading `num_full_blocks`."""
        if sequence not in self._announced:
            return
        first, keys = self._announced[sequence]
        num_filled = num_full_blocks - first
        if num_filled <= 0:
            return
        self._forget(sequence, keys[:num_filled])
        if num_filled >= len(keys):
            del self._announced[sequence]
        else:
            self._announced[sequence] = (num_full_blocks, keys[num_filled:])

    def withdraw(self, sequence: TokenSequence) -> None:
        """Forget all that a sequence has announced: it will not fill them."""
        _, keys = self._announced.pop(sequence, (0, ()))
        self._forget(sequence, keys)

    def author(self, key: bytes) -> TokenSequence | None:
        """Who computes the block of that name; None if nobody does."""
        return self._authors.get(key)

    def _forget(self, sequence: TokenSequence, keys: Sequence[bytes]) -> None:
        for key in keys:
            if self._authors.get(key) is sequence:
                del self._authors[key]
