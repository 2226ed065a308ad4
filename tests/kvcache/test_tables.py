from __future__ import annotations

from firstword.kvcache.block_pool import NO_BLOCK
from firstword.kvcache.tables import BlockTable, Holding


def test_references_name_the_first_of_each_chain_last() -> None:
    tables = (BlockTable([3, 4, 5]), BlockTable([NO_BLOCK, 7, 8]))
    held = Holding(tables, snapshots=[(0, 1, 9)])
    references = held.references()
    assert references[0] == 9
    assert references[-1] == 3
    assert sorted(references) == [3, 4, 5, 7, 8, 9]
    assert references.index(5) < references.index(4) < references.index(3)
    assert references.index(8) < references.index(7)
