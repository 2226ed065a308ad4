"""What the block bookkeeping asks of a store of blocks below the pool: values and a protocol.

Not here: files (disk).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

Departure = Literal["evicted", "expired"]


class BlockIndex(Protocol):
    """Full blocks that are kept outside the pool, with the pages of all KV groups in each.

    Blocks are named as in block_pool.block_key. No method reads the blocks themselves.
    """

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Whether the block of that key, with these tokens, is kept."""

    def children(self, parent: bytes) -> Iterable[tuple[int, ...]]:
        """Tokens of the kept blocks that follow on the block `parent`."""

    def departure(self, key: bytes) -> Departure | None:
        """Why a block that was kept once is not any more; None where nothing is known of it."""

    def known_elsewhere(self, token_ids: tuple[int, ...]) -> bool:
        """Whether a text beginning with this block is kept for another model or other settings."""
