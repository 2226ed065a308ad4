"""Reference counts, eviction order and content lookup of the block pool."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from firstword.kvcache.block_pool import (
    NO_BLOCK,
    BlockContent,
    BlockPool,
    block_key,
    common_prefix_length,
)

ROOT = block_key(b"root", ())


def content(
    *token_ids: int, parent: bytes = ROOT, group: int = 0, full: bool = True
) -> BlockContent:
    return BlockContent(group, parent, token_ids, block_key(parent, token_ids) if full else None)


def cached(pool: BlockPool, what: BlockContent) -> int:
    """Cache something in a fresh block and free the block."""
    block = pool.allocate()
    assert pool.cache(block, what)
    pool.release(block)
    return block


def test_blocks_are_handed_out_in_order_until_none_is_left() -> None:
    pool = BlockPool(3)
    assert [pool.allocate() for _ in range(3)] == [0, 1, 2]
    assert pool.num_free == 0
    pool.check_invariants([0, 1, 2])


def test_a_block_is_free_when_its_last_reference_goes() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    pool.retain(block)
    pool.release(block)
    assert (pool.ref_count(block), pool.num_free) == (1, 1)
    pool.release(block)
    assert (pool.ref_count(block), pool.num_free) == (0, 2)
    with pytest.raises(AssertionError, match="freed twice"):
        pool.release(block)


def test_blocks_never_cached_go_first_then_the_least_recently_used() -> None:
    pool = BlockPool(4)
    blocks = [pool.allocate() for _ in range(4)]
    for block in (2, 0, 3):
        assert pool.cache(block, content(block))
    for block in (2, 0, 3, 1):
        pool.release(block)
    pool.retain(2)  # used again: now the most recent
    pool.release(2)
    assert [pool.allocate() for _ in blocks] == [1, 0, 3, 2]
    assert pool.num_evicted == 3


def test_an_evicted_block_is_found_no_more() -> None:
    pool = BlockPool(1)
    key = block_key(ROOT, (1, 2))
    block = cached(pool, content(1, 2))
    assert pool.lookup(0, key, (1, 2)) == block
    pool.allocate()
    assert pool.lookup(0, key, (1, 2)) == NO_BLOCK
    assert pool.longest_common_prefix(0, ROOT, (1, 2)) == (NO_BLOCK, 0)
    assert not pool.is_cached(block)


def test_a_cached_block_can_be_taken_up_again() -> None:
    pool = BlockPool(1)
    block = cached(pool, content(1, 2))
    pool.retain(block)
    assert pool.num_free == 0
    pool.check_invariants([block])


def test_a_hit_compares_the_tokens_and_not_only_the_key() -> None:
    pool = BlockPool(2)
    cached(pool, content(1, 2))
    assert pool.lookup(0, block_key(ROOT, (1, 2)), (1, 3)) == NO_BLOCK


def test_groups_do_not_see_each_others_blocks() -> None:
    pool = BlockPool(2)
    cached(pool, content(1, 2))
    assert pool.lookup(1, block_key(ROOT, (1, 2)), (1, 2)) == NO_BLOCK
    assert pool.longest_common_prefix(1, ROOT, (1, 2)) == (NO_BLOCK, 0)


def test_the_child_that_shares_most_tokens_is_found() -> None:
    pool = BlockPool(4)
    cached(pool, content(1, 2, 3, 4))
    longer = cached(pool, content(1, 2, 9, 9))
    cached(pool, content(7, full=False))
    assert pool.longest_common_prefix(0, ROOT, (1, 2, 9)) == (longer, 3)
    assert pool.longest_common_prefix(0, ROOT, (8, 2, 9)) == (NO_BLOCK, 0)


def test_the_same_content_is_cached_once() -> None:
    pool = BlockPool(4)
    cached(pool, content(1, 2, 3, 4))
    block = pool.allocate()
    assert not pool.cache(block, content(1, 2, 3, 4))
    assert not pool.cache(block, content(1, 2, full=False))  # the start of what is there
    assert pool.cache(block, content(1, 3, full=False))
    pool.check_invariants([block])


def test_children_of_an_evicted_parent_are_reached_again_when_it_returns() -> None:
    pool = BlockPool(3)
    cached(pool, content(1, 2))
    key = block_key(ROOT, (1, 2))
    child = cached(pool, content(3, 4, parent=key))
    for _ in range(2):
        pool.allocate()  # the blank one, then the parent
    assert pool.lookup(0, key, (1, 2)) == NO_BLOCK
    assert pool.lookup(0, block_key(key, (3, 4)), (3, 4)) == child


def test_the_names_of_evicted_blocks_are_remembered_until_they_are_cached_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("firstword.kvcache.block_pool.NUM_REMEMBERED", 2)
    pool = BlockPool(1)
    keys = [block_key(ROOT, (i, i)) for i in range(4)]
    for i in range(4):
        cached(pool, content(i, i))
    assert [pool.was_evicted(key) for key in keys] == [False, True, True, False]
    assert list(pool.children(0, ROOT)) == [(3, 3)]
    cached(pool, content(2, 2))
    assert [pool.was_evicted(key) for key in keys] == [False, False, False, True]


def test_key_is_the_documented_digest() -> None:
    packed = bytes([1, 0, 0, 0, 0, 1, 0, 0])
    assert block_key(b"p", (1, 256)) == blake2b(b"p" + packed, digest_size=16).digest()
    assert block_key(ROOT, (1, 2)) != block_key(ROOT, (2, 1))


def test_common_prefix_length() -> None:
    assert common_prefix_length((1, 2, 3), (1, 2)) == 2
    assert common_prefix_length((1, 2, 3), (1, 5, 3)) == 1
    assert common_prefix_length((), (1,)) == 0


def test_invariants_report_a_leak_and_a_lost_block() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    with pytest.raises(AssertionError, match="block 0 has 1 references, but 0 are held"):
        pool.check_invariants([])
    with pytest.raises(AssertionError, match="but 2 are held"):
        pool.check_invariants([block, block])
