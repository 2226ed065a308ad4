"""What one sequence holds of the pool, as values.

Not here: the rules by which it comes to hold it (manager).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from firstword.kvcache.block_pool import NO_BLOCK


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy the first `count` slots of a block; a state block is copied whole.

    The copies of one step may run in any order: no block is a source of one and a destination
    of another, and no two have the same destination.
    """

    source: int
    destination: int
    count: int
    group: int


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence in one group; entry i holds positions i * block_size on."""

    blocks: list[int] = field(default_factory=list)
    borrowed: bool = False


@dataclass(slots=True)
class Holding:
    """All that one sequence holds."""

    tables: tuple[BlockTable, ...]
    num_full_blocks: int = 0  # leading blocks that nobody writes any more
    snapshots: list[tuple[int, int, int]] = field(default_factory=list)  # group, index, block

    def references(self) -> list[int]:
        """Every block held, the first of the chain last."""
        by_depth = [(i, b) for t in self.tables for i, b in enumerate(t.blocks) if b != NO_BLOCK]
        by_depth.sort(reverse=True)
        return [block for _, _, block in self.snapshots] + [block for _, block in by_depth]
