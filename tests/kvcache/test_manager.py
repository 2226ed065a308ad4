"""Blocks per sequence: admission, growth, windows, states, forks and copies."""

from __future__ import annotations

import pytest

from firstword.errors import CapacityError
from firstword.kvcache.block_pool import NO_BLOCK
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.prefix_cache import PrefixHit
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.kvcache.tables import BlockCopy
from tests.fakes import FakeSequence, full_group, sliding_group, state_group

TOKENS = list(range(100, 116))


def manager_of(
    *groups: KVGroup, num_blocks: int = 16, enable_prefix_caching: bool = True
) -> KVCacheManager:
    spec = KVCacheSpec(groups or (full_group(),), 4)
    return KVCacheManager(spec, num_blocks, enable_prefix_caching=enable_prefix_caching)


def admit(manager: KVCacheManager, tokens: list[int], num_new_tokens: int) -> FakeSequence:
    """Admit a sequence with whatever the cache has for it, and run its first chunk."""
    sequence = FakeSequence(tokens)
    hit = manager.match_prefix(sequence)
    assert manager.admit(sequence, num_new_tokens, hit)
    sequence.num_computed_tokens = hit.num_tokens
    finish_step(manager, (sequence, num_new_tokens))
    return sequence


def finish_step(manager: KVCacheManager, *chunks: tuple[FakeSequence, int]) -> None:
    manager.check_invariants()
    manager.end_step()
    for sequence, num_new_tokens in chunks:
        sequence.num_computed_tokens += num_new_tokens
        manager.commit(sequence)
    manager.check_invariants()


def grow(manager: KVCacheManager, sequence: FakeSequence, num_new_tokens: int) -> None:
    assert manager.allocate(sequence, num_new_tokens)
    finish_step(manager, (sequence, num_new_tokens))


def test_blocks_come_as_positions_need_them() -> None:
    manager = manager_of()
    sequence = admit(manager, TOKENS, 3)
    assert manager.block_tables(sequence) == ((0,),)
    grow(manager, sequence, 1)
    assert manager.block_tables(sequence) == ((0,),)
    grow(manager, sequence, 5)
    assert manager.block_tables(sequence) == ((0, 1, 2),)
    assert manager.num_free_blocks == 13
    assert manager.usage == pytest.approx(3 / 16)


def test_allocation_is_all_or_nothing_over_all_groups() -> None:
    manager = manager_of(full_group(0), full_group(1), num_blocks=5)
    sequence = admit(manager, TOKENS, 8)
    assert not manager.allocate(sequence, 4)
    assert manager.num_free_blocks == 1
    assert not manager.admit(FakeSequence([1]), 1, PrefixHit())
    assert manager.num_free_blocks == 1
    manager.check_invariants()


def test_a_refused_admission_gives_the_blocks_of_its_hit_back() -> None:
    manager = manager_of(num_blocks=4)
    manager.free(admit(manager, TOKENS, 8))
    other = admit(manager, [1, 2, 3, 4, 5], 5)
    sequence = FakeSequence(TOKENS)
    hit = manager.match_prefix(sequence)
    assert hit.num_tokens == 8
    assert not manager.admit(sequence, 8, hit)
    assert manager.holders == {other}
    assert manager.num_free_blocks == 2
    manager.check_invariants()


def test_p04_full_blocks_are_shared_by_reference_between_running_sequences() -> None:
    manager = manager_of()
    first = admit(manager, TOKENS[:9], 9)
    second = admit(manager, [*TOKENS[:8], 1, 2], 2)
    assert manager.block_tables(first)[0][:2] == manager.block_tables(second)[0][:2]
    assert manager.num_blocks - manager.num_free_blocks == 4


def test_a_hit_inside_a_block_is_copied_before_anything_is_written() -> None:
    manager = manager_of()
    manager.free(admit(manager, TOKENS[:8], 8))
    sequence = FakeSequence([*TOKENS[:6], 1, 2])
    hit = manager.match_prefix(sequence)
    assert manager.admit(sequence, 2, hit)
    assert manager.step_copies == (BlockCopy(source=1, destination=2, count=2, group=0),)
    assert manager.block_tables(sequence) == ((0, 2),)
    finish_step(manager)
    assert not manager.step_copies


def test_the_source_of_a_copy_is_not_handed_out_before_the_step_is_over() -> None:
    manager = manager_of(num_blocks=4)
    manager.free(admit(manager, TOKENS[:8], 8))
    sequence = FakeSequence([*TOKENS[:6], 1, 2])
    assert manager.admit(sequence, 2, manager.match_prefix(sequence))
    other = FakeSequence([9] * 8)
    assert not manager.admit(other, 8, PrefixHit())  # one blank block and the source
    manager.end_step()
    assert manager.admit(other, 8, PrefixHit())


def test_p02_a_freed_tail_is_reused_to_the_token() -> None:
    manager = manager_of()
    sequence = admit(manager, TOKENS[:7], 6)
    manager.free(sequence)
    next_turn = FakeSequence([*TOKENS[:7], 1, 2, 3])
    assert manager.match_prefix(next_turn).num_tokens == 6
    assert manager.num_free_blocks == manager.num_blocks


def test_a_tail_of_a_step_that_failed_is_not_kept() -> None:
    manager = manager_of()
    sequence = admit(manager, TOKENS, 6)
    assert manager.allocate(sequence, 4)
    manager.end_step()
    manager.free(sequence, keep_tail=False)
    assert manager.match_prefix(FakeSequence(TOKENS)).num_tokens == 4
    manager.check_invariants()


def test_the_tail_of_a_chain_is_evicted_first_in_every_group() -> None:
    manager = manager_of(full_group(0), full_group(1), num_blocks=8)
    manager.free(admit(manager, TOKENS, 16))
    admit(manager, [1, 2, 3], 3)
    assert manager.pool.num_evicted == 2
    assert manager.match_prefix(FakeSequence([*TOKENS, 1])).num_tokens == 12


def test_without_prefix_caching_nothing_is_kept() -> None:
    manager = manager_of(enable_prefix_caching=False)
    manager.free(admit(manager, TOKENS, 8))
    assert manager.match_prefix(FakeSequence(TOKENS)) == PrefixHit()
    admit(manager, TOKENS, 16)
    assert manager.pool.num_evicted == 0


def test_a_sliding_group_gives_back_what_its_window_leaves_behind() -> None:
    manager = manager_of(full_group(0), sliding_group(1, 6))
    sequence = admit(manager, TOKENS, 8)  # the query at 8 sees 3 .. 8
    assert NO_BLOCK not in manager.block_tables(sequence)[1]
    grow(manager, sequence, 1)  # the query at 9 sees 4 .. 9
    full, sliding = manager.block_tables(sequence)
    assert NO_BLOCK not in full
    assert sliding[0] == NO_BLOCK and NO_BLOCK not in sliding[1:]
    grow(manager, sequence, 7)
    sliding = manager.block_tables(sequence)[1]
    assert sliding[:2] == (NO_BLOCK,) * 2 and NO_BLOCK not in sliding[2:]


def test_a_long_sequence_holds_a_bounded_number_of_sliding_blocks() -> None:
    manager = manager_of(sliding_group(0, 6), num_blocks=5)
    sequence = admit(manager, list(range(200)), 4)
    for _ in range(49):
        grow(manager, sequence, 4)
    assert manager.num_blocks - manager.num_free_blocks <= manager.spec.blocks_per_sequence(200, 4)


def test_a_hit_in_a_sliding_group_takes_the_window_only() -> None:
    manager = manager_of(full_group(0), sliding_group(1, 4))
    manager.free(admit(manager, TOKENS, 16))
    sequence = admit(manager, [*TOKENS, 1], 1)
    assert sequence.num_computed_tokens == 17
    assert manager.block_tables(sequence)[1][:3] == (NO_BLOCK,) * 3


def test_a_fork_shares_full_blocks_and_copies_the_last_one() -> None:
    manager = manager_of()
    parent = admit(manager, TOKENS[:6], 6)
    child = FakeSequence(list(TOKENS[:6]), num_computed_tokens=6)
    manager.fork(parent, child)
    manager.check_invariants()
    assert manager.num_free_blocks == 14
    for sequence, token in ((parent, 1), (child, 2)):
        sequence.token_ids = [*sequence.token_ids, token]
        assert manager.allocate(sequence, 1)
    assert manager.block_tables(parent) == ((0, 1),)
    assert manager.block_tables(child) == ((0, 2),)
    assert manager.step_copies == (BlockCopy(1, 2, 2, 0),)
    finish_step(manager, (parent, 1), (child, 1))


def test_a_fork_at_a_block_border_copies_nothing() -> None:
    manager = manager_of()
    parent = admit(manager, TOKENS[:8], 8)
    child = FakeSequence(list(TOKENS[:8]), num_computed_tokens=8)
    manager.fork(parent, child)
    assert manager.allocate(parent, 1) and manager.allocate(child, 1)
    assert manager.step_copies == ()
    finish_step(manager, (parent, 1), (child, 1))


def test_a_child_outlives_its_parent() -> None:
    manager = manager_of()
    parent = admit(manager, TOKENS[:6], 6)
    child = FakeSequence(list(TOKENS[:6]), num_computed_tokens=6)
    manager.fork(parent, child)
    manager.free(parent)
    manager.check_invariants()
    child.token_ids.append(1)
    grow(manager, child, 1)
    manager.free(child)
    assert manager.match_prefix(FakeSequence([*TOKENS[:6], 1, 2])).num_tokens == 7
    assert manager.match_prefix(FakeSequence([*TOKENS[:6], 3, 2])).num_tokens == 6


def test_a_fork_of_a_state_copies_it_whole() -> None:
    manager = manager_of(state_group(0, 8))
    parent = admit(manager, TOKENS[:5], 5)
    child = FakeSequence(list(TOKENS[:5]), num_computed_tokens=5)
    manager.fork(parent, child)
    assert manager.allocate(parent, 1) and manager.allocate(child, 1)
    assert manager.step_copies == (BlockCopy(0, 1, 4, 0),)
    finish_step(manager, (parent, 1), (child, 1))


def test_a_fork_at_a_checkpoint_keeps_one_snapshot() -> None:
    manager = manager_of(state_group(0, 8))
    parent = admit(manager, TOKENS[:8], 8)
    child = FakeSequence(list(TOKENS[:8]), num_computed_tokens=8)
    manager.fork(parent, child)
    assert manager.allocate(parent, 1) and manager.allocate(child, 1)
    assert [copy.source for copy in manager.step_copies] == [0, 0]
    finish_step(manager, (parent, 1), (child, 1))


def test_the_state_is_kept_at_checkpoints() -> None:
    manager = manager_of(full_group(0), state_group(1, 8))
    assert [manager.chunk_limit(start) for start in (0, 3, 8, 15)] == [8, 5, 8, 1]
    sequence = admit(manager, TOKENS, 8)
    assert manager.match_prefix(FakeSequence(TOKENS)).num_tokens == 0
    state = manager.block_tables(sequence)[1][0]
    assert manager.allocate(sequence, 2)  # moves the state on: a copy is made first
    (copy,) = manager.step_copies
    assert (copy.source, copy.count, copy.group) == (state, 4, 1)
    finish_step(manager, (sequence, 2))
    hit = manager.match_prefix(FakeSequence(TOKENS))
    assert (hit.num_tokens, hit.blocks[1]) == (8, (copy.destination,))


def test_a_sequence_that_ends_at_a_checkpoint_leaves_its_state_behind() -> None:
    manager = manager_of(full_group(0), state_group(1, 8))
    sequence = admit(manager, TOKENS, 8)
    (state,) = manager.block_tables(sequence)[1]
    manager.free(sequence)
    assert manager.match_prefix(FakeSequence(TOKENS)).blocks[1] == (state,)


def test_a_snapshot_is_skipped_where_no_block_is_free() -> None:
    manager = manager_of(full_group(0), state_group(1, 4), num_blocks=3)
    sequence = admit(manager, TOKENS, 4)
    assert manager.allocate(sequence, 4)
    assert manager.step_copies == ()


def test_a_state_is_restored_by_copy() -> None:
    manager = manager_of(state_group(0, 4))
    manager.free(admit(manager, TOKENS, 4))
    sequence = FakeSequence(TOKENS)
    hit = manager.match_prefix(sequence)
    assert hit.num_tokens == 4
    assert manager.admit(sequence, 4, hit)
    assert manager.step_copies == (BlockCopy(0, 1, 4, 0),)
    assert manager.block_tables(sequence) == ((1,),)


def test_without_prefix_caching_chunks_end_anywhere() -> None:
    assert manager_of(state_group(0, 4), enable_prefix_caching=False).chunk_limit(3) is None
    assert manager_of().chunk_limit(3) is None


def test_capacity_names_both_numbers() -> None:
    manager = manager_of(num_blocks=4)
    manager.check_capacity(16, 8)
    with pytest.raises(CapacityError, match=r"17 tokens needs 5 KV blocks, but the pool has 4"):
        manager.check_capacity(17, 8)


def test_freeing_what_holds_nothing_is_harmless() -> None:
    manager = manager_of()
    manager.free(FakeSequence(TOKENS))
    assert manager.num_free_blocks == manager.num_blocks
