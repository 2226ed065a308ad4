"""Blocks are handed to the tier when it has room, and never if they have left the pool."""

from __future__ import annotations

from firstword.kvcache.block_pool import BlockContent, BlockPool, block_key
from firstword.kvcache.spec import KVCacheSpec
from firstword.kvcache.tier import BlockName
from firstword.kvcache.write_behind import WriteBehind
from tests.fakes import FakeRunner, FakeTier, full_group

ROOT = block_key(b"", ())


def setting(num_groups: int = 1) -> tuple[WriteBehind, BlockPool, FakeTier]:
    tier = FakeTier(FakeRunner(KVCacheSpec((full_group(),), 4)))
    pool = BlockPool(4)
    return WriteBehind(pool, num_groups, tier), pool, tier


def cached(pool: BlockPool, token: int, num_groups: int = 1) -> BlockName:
    """A full block in the cache, which nobody holds any more."""
    name = BlockName.of(ROOT, (token,) * 4)
    for group in range(num_groups):
        block = pool.allocate()
        pool.cache(block, BlockContent(group, name.parent, name.token_ids, name.key))
        pool.release(block)
    return name


def test_offered_blocks_are_handed_over_in_their_order() -> None:
    write_behind, pool, tier = setting()
    names = [cached(pool, token) for token in range(3)]
    for name in names:
        write_behind.offer(name)
    assert len(write_behind) == 3
    write_behind.pump()
    assert len(write_behind) == 0
    assert [name for name, _ in tier.kept.values()] == names


def test_blocks_wait_while_the_tier_has_no_room() -> None:
    write_behind, pool, tier = setting()
    tier.is_stuck = True
    write_behind.offer(cached(pool, 1))
    write_behind.pump()
    assert len(write_behind) == 1
    tier.is_stuck = False
    write_behind.pump()
    assert len(write_behind) == 0 and len(tier.kept) == 1


def test_what_the_tier_has_is_not_offered_again() -> None:
    write_behind, pool, tier = setting()
    name = cached(pool, 1)
    write_behind.offer(name)
    write_behind.offer(name)
    assert len(write_behind) == 1 and tier.touched == []
    write_behind.pump()
    write_behind.offer(name)
    assert len(write_behind) == 0 and tier.touched == [name.key]  # it was used again


def test_a_block_that_was_evicted_in_any_group_is_left_out() -> None:
    write_behind, pool, tier = setting(num_groups=2)
    tier.is_stuck = True
    gone, there = cached(pool, 1, 2), cached(pool, 2, 2)
    write_behind.offer(gone)
    write_behind.offer(there)
    pool.release(pool.allocate())  # the oldest page is that of `gone` in the first group
    tier.is_stuck = False
    write_behind.pump()
    assert [name for name, _ in tier.kept.values()] == [there]
