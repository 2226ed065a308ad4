"""Which blocks are being computed right now, so that nobody computes them a second time.

Not here: blocks whose content is there already (prefix_cache), and who waits (engine.scheduler).
"""

from __future__ import annotations

from collections.abc import Sequence

Author = object
"""A sequence that computes blocks, or a load that reads them; told apart by identity."""


class InFlightBlocks:
    """The full blocks that sequences and loads have announced and not filled yet.

    Blocks are named by their keys (block_pool.block_key): one that is announced stands for all
    that is before it as well.
    """

    def __init__(self) -> None:
        self._authors: dict[bytes, Author] = {}
        self._announced: dict[Author, Sequence[bytes]] = {}

    def __len__(self) -> int:
        return len(self._authors)

    def announce(self, author: Author, keys: Sequence[bytes]) -> None:
        """Note that an author will fill blocks.

        Args:
            author: who computes; it has announced nothing.
            keys: names of the blocks, in their order. Those that another has announced before
                stay its own.
        """
        if keys:
            self._announced[author] = keys
        for key in keys:
            self._authors.setdefault(key, author)

    def filled(self, author: Author, num_blocks: int) -> None:
        """Forget the next `num_blocks` blocks of an author: they are there now."""
        keys = self._announced.get(author)
        if keys is None:
            return
        self._forget(author, keys[:num_blocks])
        self._announced[author] = keys[num_blocks:]
        if len(keys) <= num_blocks:
            del self._announced[author]

    def withdraw(self, author: Author) -> None:
        """Forget all that an author has announced: it will not fill them."""
        self._forget(author, self._announced.pop(author, ()))

    def author(self, key: bytes) -> Author | None:
        """Who computes or loads the block of that name; None if nobody does."""
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

    def _forget(self, author: Author, keys: Sequence[bytes]) -> None:
        for key in keys:
            if self._authors.get(key) is author:
                del self._authors[key]
