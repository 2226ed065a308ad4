"""Full blocks on their way from the pool to the tier below it.

Not here: files and threads (disk), and which sequences' blocks may be kept (manager).
"""

from __future__ import annotations

from collections import OrderedDict

from firstword.kvcache.block_pool import NO_BLOCK, BlockPool
from firstword.kvcache.tier import BlockName, BlockTier


class WriteBehind:
    """Blocks that are in the pool and not in the tier yet, the oldest first.

    Nothing holds a block for this: one that is evicted before its turn is not kept. A tier that
    writes as fast as blocks come takes each at once.

    Args:
        pool: where the blocks are.
        num_groups: KV groups; a block is kept with the pages of all.
        tier: where they go.
    """

    def __init__(self, pool: BlockPool, num_groups: int, tier: BlockTier) -> None:
        self._pool, self._groups, self._tier = pool, range(num_groups), tier
        self._waiting: OrderedDict[bytes, BlockName] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, name: BlockName) -> None:
        """Let a full block that is cached in the pool be kept; if it is, it was used again."""
        if self._tier.holds(name.key, name.token_ids):
            self._tier.touch(name.key)
        else:
            self._waiting[name.key] = name

    def pump(self) -> None:
        """Hand over as many blocks as the tier takes now."""
        while self._waiting:
            name = next(iter(self._waiting.values()))
            blocks = [self._pool.lookup(g, name.key, name.token_ids) for g in self._groups]
            if NO_BLOCK not in blocks and not self._tier.save(name, blocks):
                return
            del self._waiting[name.key]
