"""What the block bookkeeping asks of a store of blocks below the pool: values and protocols.

Not here: files and threads (disk).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from firstword.kvcache.block_pool import block_key

Departure = Literal["evicted", "expired"]


class BlockIndex(Protocol):
    """Full blocks that are kept outside the pool, with the pages of all KV groups in each.

    Blocks are named as in block_pool.block_key. No method reads the blocks themselves.
    """

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Whether the block of that key, with these tokens, is kept."""

    def children(self, parent: bytes, limit: int) -> Iterable[tuple[int, ...]]:
        """Tokens of the kept blocks that follow on the block `parent`: the newest `limit`."""

    def departure(self, key: bytes) -> Departure | None:
        """Why a block that was kept once is not any more; None where nothing is known of it."""

    def known_elsewhere(self, token_ids: tuple[int, ...]) -> bool:
        """Whether a text beginning with this block is kept for another model or other settings.

        Text under a salt is not told of.
        """


class BlockName(NamedTuple):
    """A full block of tokens, by everything that tells it from others.

    Args:
        key: block_pool.block_key(parent, token_ids).
        parent: key of the block before it.
        token_ids: its tokens.
    """

    key: bytes
    parent: bytes
    token_ids: tuple[int, ...]

    @classmethod
    def of(cls, parent: bytes, token_ids: tuple[int, ...]) -> BlockName:
        """Name the block of these tokens that follows on `parent`."""
        return cls(block_key(parent, token_ids), parent, token_ids)


@dataclass(frozen=True, slots=True)
class BlockRead:
    """Which pages of a kept block are wanted, and where they go.

    Args:
        name: of the block.
        pages: (KV group, block of the pool) of each.
    """

    name: BlockName
    pages: tuple[tuple[int, int], ...]


class FinishedLoad(NamedTuple):
    """A load is over.

    Args:
        number: which.
        num_reads: how many of its reads, from the first on, succeeded.
    """

    number: int
    num_reads: int


class BlockTier(BlockIndex, Protocol):
    """Moves full blocks between the pool and a slower store, behind the step loop.

    Only the step loop's thread calls it. A block is never changed while it is being moved: who
    calls sees to that.
    """

    def refresh(self) -> None:
        """Take in what other processes have kept since."""

    def save(self, name: BlockName, blocks: Sequence[int]) -> bool:
        """Copy a block to be written.

        Args:
            name: of the block.
            blocks: of the pool, one for each KV group; free to change when this returns.

        Returns:
            False where too much waits to be written: try again later.
        """

    def touch(self, key: bytes) -> None:
        """Say that a kept block was used, though not read from here: it stays longer."""

    def load(self, number: int, reads: Sequence[BlockRead]) -> None:
        """Begin to read blocks into the pool, in their order, up to the first that fails."""

    def finished_loads(self) -> list[FinishedLoad]:
        """Loads that have ended since the last call."""

    def wait(self, seconds: float) -> None:
        """Wait until a load ends, or that long."""

    def load_ms(self, num_pages: int) -> float:
        """Predicted milliseconds to read so many pages, of one KV group and block each."""

    def close(self) -> None:
        """Write what waits, within a time limit, and end."""
