"""The longest cached prefix, by group kind."""

from __future__ import annotations

import pytest

from firstword.kvcache.block_pool import NO_BLOCK, BlockPool
from firstword.kvcache.prefix_cache import PrefixCache, PrefixHit
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from tests.fakes import FakeSequence, full_group, sliding_group, state_group


def cache_of(*groups: KVGroup, block_size: int = 4) -> tuple[PrefixCache, BlockPool]:
    pool = BlockPool(32)
    return PrefixCache(KVCacheSpec(groups, block_size), pool), pool


def keep(
    cache: PrefixCache, pool: BlockPool, tokens: list[int], group: int, *indices: int
) -> list[int]:
    """Cache full blocks of a sequence of these tokens; returns the blocks."""
    blocks = []
    for index in indices:
        block = pool.allocate()
        cache.keep_block(group, FakeSequence(tokens), index, block)
        blocks.append(block)
    return blocks


TOKENS = list(range(100, 112))  # three blocks of four


def test_nothing_cached_is_no_hit() -> None:
    cache, _ = cache_of(full_group())
    assert cache.match(FakeSequence(TOKENS)) == PrefixHit()
    assert cache.match(FakeSequence([1])) == PrefixHit()


def test_full_blocks_are_shared_and_the_last_one_copied_up_to_the_last_token() -> None:
    cache, pool = cache_of(full_group())
    blocks = keep(cache, pool, TOKENS, 0, 0, 1, 2)
    assert cache.match(FakeSequence([*TOKENS, 7])) == PrefixHit(12, 0, (tuple(blocks),))
    assert cache.match(FakeSequence(TOKENS)) == PrefixHit(11, 3, (tuple(blocks),))


@pytest.mark.parametrize("shared", range(1, 12))
def test_p02_a_hit_ends_at_the_first_token_that_differs(shared: int) -> None:
    cache, pool = cache_of(full_group())
    keep(cache, pool, TOKENS, 0, 0, 1, 2)
    hit = cache.match(FakeSequence([*TOKENS[:shared], 7, 7, 7, 7, 7]))
    assert (hit.num_tokens, hit.num_copied_tokens) == (shared, shared % 4)


def test_a_tail_is_found() -> None:
    cache, pool = cache_of(full_group())
    first = keep(cache, pool, TOKENS, 0, 0)
    tail = pool.allocate()
    cache.keep_tail(0, FakeSequence(TOKENS, num_computed_tokens=6), tail)
    assert cache.match(FakeSequence([*TOKENS[:6], 7, 8])) == PrefixHit(6, 2, ((*first, tail),))
    assert cache.match(FakeSequence(TOKENS)).num_tokens == 6


def test_a_gap_in_a_full_group_ends_the_prefix() -> None:
    cache, pool = cache_of(full_group())
    keep(cache, pool, TOKENS, 0, 0, 2)
    assert cache.match(FakeSequence([*TOKENS, 7])).num_tokens == 4


def test_p01_a_sliding_group_needs_its_window_only() -> None:
    cache, pool = cache_of(full_group(0), sliding_group(1, 6))
    full = keep(cache, pool, TOKENS, 0, 0, 1, 2)
    last = keep(cache, pool, TOKENS, 1, 1, 2)  # positions 7 .. 11 are in the window of 12
    hit = cache.match(FakeSequence([*TOKENS, 7]))
    assert hit == PrefixHit(12, 0, (tuple(full), (NO_BLOCK, *last)))


def test_a_sliding_group_may_force_a_shorter_hit() -> None:
    cache, pool = cache_of(full_group(0), sliding_group(1, 6))
    keep(cache, pool, TOKENS, 0, 0, 1, 2)
    keep(cache, pool, TOKENS, 1, 0)
    assert cache.match(FakeSequence([*TOKENS, 7])).num_tokens == 4
    keep(cache, pool, TOKENS, 1, 2)  # block 1 is still missing
    assert cache.match(FakeSequence([*TOKENS, 7])).num_tokens == 4


def test_the_group_that_shares_least_decides_inside_a_block() -> None:
    cache, pool = cache_of(full_group(0), sliding_group(1, 64))
    keep(cache, pool, TOKENS, 0, 0, 1)
    keep(cache, pool, TOKENS, 1, 0)
    tail = pool.allocate()
    cache.keep_tail(1, FakeSequence(TOKENS, num_computed_tokens=6), tail)
    hit = cache.match(FakeSequence(TOKENS))
    assert (hit.num_tokens, hit.num_copied_tokens) == (6, 2)


def test_sliding_groups_alone_need_no_chain_from_the_start() -> None:
    cache, pool = cache_of(sliding_group(0, 3))
    (block,) = keep(cache, pool, TOKENS, 0, 2)
    assert cache.match(FakeSequence([*TOKENS, 7])) == PrefixHit(
        12, 0, ((NO_BLOCK, NO_BLOCK, block),)
    )


def test_a_state_group_is_hit_at_a_checkpoint_only() -> None:
    cache, pool = cache_of(full_group(0), state_group(1, 8))
    full = keep(cache, pool, TOKENS, 0, 0, 1, 2)
    assert cache.match(FakeSequence([*TOKENS, 7])) == PrefixHit()
    (state,) = keep(cache, pool, TOKENS, 1, 1)
    hit = cache.match(FakeSequence([*TOKENS, 7]))
    assert hit == PrefixHit(8, 0, (tuple(full[:2]), (state,)))
    assert cache.match(FakeSequence(TOKENS[:8])) == PrefixHit()  # its last token must be computed


def test_salt_and_extra_key_separate() -> None:
    pool = BlockPool(8)
    spec = KVCacheSpec((full_group(),), 4)
    cache = PrefixCache(spec, pool, b"model a")
    keep(cache, pool, TOKENS, 0, 0)
    assert cache.match(FakeSequence(TOKENS)).num_tokens == 4
    assert cache.match(FakeSequence(TOKENS, salt="x")).num_tokens == 0
    assert PrefixCache(spec, pool, b"model b").match(FakeSequence(TOKENS)).num_tokens == 0


def test_keys_are_computed_once_and_kept_with_the_sequence() -> None:
    cache, pool = cache_of(full_group())
    keep(cache, pool, TOKENS, 0, 0, 1)
    sequence = FakeSequence(TOKENS)
    cache.match(sequence)
    keys = list(sequence.block_keys)
    sequence.token_ids = [*TOKENS, 1, 2, 3, 4, 5]
    cache.match(sequence)
    assert sequence.block_keys[: len(keys)] == keys
