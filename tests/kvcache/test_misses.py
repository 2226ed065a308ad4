"""A planted miss of each cause is named, with its place and both texts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from firstword.kvcache.block_pool import block_key
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.sources import CacheMiss
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.kvcache.tier import Departure
from tests.fakes import FakeSequence, full_group, sliding_group, state_group

TOKENS = list(range(100, 116))  # four blocks of four


@dataclass
class FakeStore:
    """A store below the pool that holds what it is told to."""

    kept: dict[bytes, tuple[int, ...]] = field(default_factory=dict)
    parents: dict[bytes, list[tuple[int, ...]]] = field(default_factory=dict)
    departed: dict[bytes, Departure] = field(default_factory=dict)
    elsewhere: set[tuple[int, ...]] = field(default_factory=set)

    def keep(self, keys: list[bytes], tokens: list[int]) -> None:
        """Keep the blocks of those tokens, named by `keys` from the root on."""
        for index, (parent, key) in enumerate(pairwise(keys)):
            block = tuple(tokens[index * 4 : index * 4 + 4])
            self.kept[key] = block
            self.parents.setdefault(parent, []).append(block)

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        return self.kept.get(key) == token_ids

    def children(self, parent: bytes, limit: int) -> Iterable[tuple[int, ...]]:
        return self.parents.get(parent, [])[-limit:]

    def departure(self, key: bytes) -> Departure | None:
        return self.departed.get(key)

    def known_elsewhere(self, token_ids: tuple[int, ...]) -> bool:
        return token_ids in self.elsewhere


def manager_of(*groups: KVGroup, num_blocks: int = 16) -> KVCacheManager:
    return KVCacheManager(KVCacheSpec(groups or (full_group(),), 4), num_blocks)


def admit(manager: KVCacheManager, tokens: list[int]) -> FakeSequence:
    """Let a sequence hold blocks for all its tokens, and compute them."""
    sequence = FakeSequence(tokens)
    hit = manager.match_prefix(sequence)
    assert manager.admit(sequence, len(tokens) - hit.num_tokens, hit)
    manager.end_step()
    sequence.num_computed_tokens = len(tokens)
    manager.commit(sequence)
    return sequence


def keep(manager: KVCacheManager, tokens: list[int]) -> None:
    manager.free(admit(manager, tokens))


def fill(manager: KVCacheManager) -> None:
    """Let other text take every block."""
    num_tokens = manager.num_blocks // len(manager.spec.groups) * 4
    manager.free(admit(manager, list(range(1000, 1000 + num_tokens))), keep_tail=False)


def miss_of(manager: KVCacheManager, tokens: list[int], salt: str = "") -> CacheMiss | None:
    sequence = FakeSequence(tokens, salt=salt)
    return manager.explain_miss(sequence, manager.match_prefix(sequence))


def keys_of(manager: KVCacheManager, tokens: list[int], salt: str = "") -> list[bytes]:
    """Names of the blocks of those tokens, the root's first."""
    sequence = FakeSequence(tokens, salt=salt)
    manager.name_blocks(sequence)
    return sequence.block_keys


# -- Nothing missed ------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [TOKENS[:14], TOKENS[:9], TOKENS, [*TOKENS[:14], 1, 2, 3, 4]])
def test_a_prompt_that_is_reused_or_goes_on_where_the_cached_text_ends_has_missed_nothing(
    tokens: list[int],
) -> None:
    manager = manager_of()
    keep(manager, TOKENS[:14])
    assert miss_of(manager, tokens) is None


def test_a_branch_beside_the_text_that_goes_on_is_no_miss() -> None:
    manager = manager_of()
    keep(manager, [*TOKENS[:6], 1, 2])
    keep(manager, TOKENS[:6])
    assert miss_of(manager, [*TOKENS[:6], 3, 4]) is not None
    keep(manager, [*TOKENS[:6], 3])
    assert miss_of(manager, [*TOKENS[:6], 3, 4]) is None


def test_a_last_token_that_differs_costs_nothing() -> None:
    manager = manager_of()
    keep(manager, TOKENS)
    assert miss_of(manager, [*TOKENS[:15], 7]) is None


def test_without_anything_cached_there_is_no_miss() -> None:
    assert miss_of(manager_of(), TOKENS) is None


def test_without_prefix_caching_nothing_is_missed() -> None:
    manager = KVCacheManager(KVCacheSpec((full_group(),), 4), 16, enable_prefix_caching=False)
    keep(manager, TOKENS)
    assert miss_of(manager, [1, *TOKENS]) is None


# -- Different text ------------------------------------------------------------------------------


@pytest.mark.parametrize("position", range(15))
def test_p03_the_first_token_that_differs_is_told_with_both_texts(position: int) -> None:
    manager = manager_of()
    keep(manager, TOKENS)
    changed = [*TOKENS[:position], 7, *TOKENS[position + 1 :]]
    miss = miss_of(manager, changed)
    assert miss is not None
    assert (miss.cause, miss.position) == ("different_text", position)
    assert miss.num_tokens == 16 - position
    assert miss.token_ids == tuple(changed[position : position + 8])
    block_end = (position // 4 + 2) * 4  # the block in which it is, and the next one
    assert miss.cached_token_ids == tuple(TOKENS[position : min(position + 8, block_end)])


def test_p02_a_prompt_shorter_than_a_block_tells_where_it_differs() -> None:
    manager = manager_of()
    keep(manager, [1, 3, 3])
    assert miss_of(manager, [1, 2, 3]) == CacheMiss("different_text", 1, 2, (2, 3), (3, 3))


def test_of_several_texts_the_nearest_is_compared() -> None:
    manager = manager_of()
    keep(manager, [1, 2, 9, 9, 9])
    keep(manager, [1, 2, 3, 9, 9])
    keep(manager, [1, 9, 9, 9, 9])
    miss = miss_of(manager, [1, 2, 3, 4, 5])
    assert miss == CacheMiss("different_text", 3, 2, (4, 5), (9, 9))


def test_text_that_is_only_on_disk_is_compared_to_the_token() -> None:
    manager, store = manager_of(), FakeStore()
    manager.misses.below = store
    store.keep(keys_of(manager, TOKENS), TOKENS)
    miss = miss_of(manager, [*TOKENS[:2], 7, 8, 9])  # less than a block is shared
    assert miss == CacheMiss("different_text", 2, 3, (7, 8, 9), tuple(TOKENS[2:8]))


def test_text_of_another_salt_is_never_looked_at() -> None:
    manager, store = manager_of(), FakeStore()
    manager.misses.below = store
    keep(manager, TOKENS)
    store.keep(keys_of(manager, TOKENS), TOKENS)
    store.elsewhere.add(tuple(TOKENS[:4]))
    assert miss_of(manager, [*TOKENS[:6], 7, 8], salt="mine") is None


# -- Too short -----------------------------------------------------------------------------------


def test_p02_what_a_running_sequence_has_in_a_part_of_a_block_is_too_short() -> None:
    manager = manager_of()
    admit(manager, TOKENS[:7])
    miss = miss_of(manager, [*TOKENS[:7], 1, 2])
    assert miss == CacheMiss("too_short", 4, 3, (*TOKENS[4:7], 1, 2))


def test_a_running_sequence_that_differs_is_compared_like_cached_text() -> None:
    manager = manager_of()
    admit(manager, TOKENS[:7])
    miss = miss_of(manager, [*TOKENS[:6], 1, 2])
    assert miss == CacheMiss("different_text", 6, 2, (1, 2), (TOKENS[6],))


def test_blocks_that_are_not_worth_loading_are_too_short() -> None:
    manager, store = manager_of(), FakeStore()
    manager.misses.below = store
    keep(manager, TOKENS[:4])
    store.keep(keys_of(manager, TOKENS[:12]), TOKENS)
    miss = miss_of(manager, [*TOKENS, 1])
    assert miss == CacheMiss("too_short", 4, 8, tuple(TOKENS[4:12]))


def test_a_part_of_a_block_on_disk_is_too_short() -> None:
    manager, store = manager_of(), FakeStore()
    manager.misses.below = store
    store.keep(keys_of(manager, TOKENS), TOKENS)
    assert miss_of(manager, TOKENS[:3]) == CacheMiss("too_short", 0, 2, tuple(TOKENS[:3]))


def test_a_state_between_two_checkpoints_is_too_short() -> None:
    manager = manager_of(full_group(), state_group(1, checkpoint_interval=8))
    keep(manager, TOKENS[:14])
    miss = miss_of(manager, [*TOKENS[:14], 1, 2])
    assert miss == CacheMiss("too_short", 0, 12, tuple(TOKENS[:8]))


# -- Evicted, expired, elsewhere -----------------------------------------------------------------


def test_p04_text_that_gave_way_to_other_text_is_evicted() -> None:
    manager = manager_of(num_blocks=4)
    keep(manager, TOKENS)
    fill(manager)
    miss = miss_of(manager, [*TOKENS, 1])
    assert miss == CacheMiss("evicted", 0, 16, tuple(TOKENS[:8]))


def test_only_the_evicted_tail_is_told() -> None:
    manager = manager_of(num_blocks=4)
    keep(manager, TOKENS)
    keep(manager, [1, 2, 3, 4, 5, 6, 7, 8])
    miss = miss_of(manager, [*TOKENS, 1])
    assert miss == CacheMiss("evicted", 8, 8, tuple(TOKENS[8:16]))


def test_text_that_is_cached_again_is_evicted_no_more() -> None:
    manager = manager_of(num_blocks=4)
    keep(manager, TOKENS)
    fill(manager)
    keep(manager, TOKENS)
    assert miss_of(manager, [*TOKENS, 1]) is None


def test_p01_where_the_blocks_of_a_window_are_gone_the_tokens_lost_are_told() -> None:
    manager = manager_of(full_group(), sliding_group(1, window=4), num_blocks=10)
    keep(manager, TOKENS)
    admit(manager, [1, 2, 3, 4, 5])  # takes blocks of the window, which were given back first
    missed = miss_of(manager, [*TOKENS[:9], 7, 8])
    assert missed == CacheMiss("evicted", 4, 4, (*TOKENS[4:9], 7, 8), of_window=True)


def test_a_prompt_that_no_room_is_left_to_reuse_counts_as_evicted() -> None:
    manager = manager_of()
    keep(manager, TOKENS)
    nothing = manager.match_prefix(FakeSequence([5, 5]))
    miss = manager.explain_miss(FakeSequence(TOKENS), nothing)
    assert miss == CacheMiss("evicted", 0, 15, tuple(TOKENS[:8]))


@pytest.mark.parametrize("departure", ["evicted", "expired"])
def test_what_left_the_disk_is_told_with_its_reason(departure: Departure) -> None:
    manager, store = manager_of(), FakeStore()
    manager.misses.below = store
    keep(manager, TOKENS[:4])
    for key in keys_of(manager, TOKENS)[2:]:
        store.departed[key] = departure
    miss = miss_of(manager, [*TOKENS, 1])
    assert miss == CacheMiss(departure, 4, 12, tuple(TOKENS[4:12]))


def test_the_same_text_of_another_model_is_told_even_beside_the_template_shared_here() -> None:
    manager, store = manager_of(), FakeStore(elsewhere={tuple(TOKENS[:4])})
    manager.misses.below = store
    assert miss_of(manager, TOKENS) == CacheMiss("other_settings", 0, 15, tuple(TOKENS[:8]))
    keep(manager, [TOKENS[0], 1, 2, 3])
    assert miss_of(manager, TOKENS) == CacheMiss("other_settings", 1, 14, tuple(TOKENS[1:9]))


def test_a_block_of_the_same_name_but_other_tokens_is_not_held() -> None:
    manager, store = manager_of(), FakeStore()
    manager.misses.below = store
    root = keys_of(manager, [])[0]
    store.kept[block_key(root, TOKENS[:4])] = (1, 2, 3, 4)
    assert miss_of(manager, TOKENS) is None
