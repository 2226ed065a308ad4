<<<<<<< HEAD
from __future__ import annotations

import pytest
=======
"""Bytes and blocks of KV groups."""

from __future__ import annotations

import pytest
from tests.fakes import full_group, sliding_group, state_group
>>>>>>> scheduler

from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec, KVGroup, kv_bytes, split_evenly

<<<<<<< HEAD
LLAMA_8B = KVCacheSpec((KVGroup("full", "full", tuple(range(32)), num_kv_heads=8, head_dim=128),))
GEMMA_FULL = KVGroup("full", "full", (5, 11, 17), num_kv_heads=1, head_dim=256)
GEMMA_SLIDING = KVGroup(
    "sliding",
    "sliding",
    tuple(i for i in range(18) if (i + 1) % 6),
    num_kv_heads=1,
    head_dim=256,
    window=512,
)
GEMMA_270M = KVCacheSpec(split_evenly((GEMMA_FULL, GEMMA_SLIDING)))


def test_llama_8b_in_f16_by_the_formula() -> None:
    assert kv_bytes(LLAMA_8B, 1) == 32 * 2 * 8 * 128 * 2 == 131_072
    assert kv_bytes(LLAMA_8B, 4096) == 512 * 2**20
    assert kv_bytes(LLAMA_8B, 131_072) == 16 * 2**30


def test_windows_cap_what_sliding_layers_hold() -> None:
    assert kv_bytes(GEMMA_270M, 512) == 512 * 18 * 1024
    assert kv_bytes(GEMMA_270M, 32_768) == 32_768 * 3 * 1024 + 512 * 15 * 1024  # 108 MB, not 604


def test_groups_are_split_until_their_blocks_are_of_one_size() -> None:
    assert len(GEMMA_270M.groups) == 6
    assert {g.bytes_per_block(32) for g in GEMMA_270M.groups} == {GEMMA_270M.page_bytes}
    layers = sorted(layer for g in GEMMA_270M.groups for layer in g.layers)
    assert layers == list(range(18))


def test_splitting_leaves_single_groups_and_unequal_layers_alone() -> None:
    assert split_evenly(LLAMA_8B.groups) == LLAMA_8B.groups
    wide = KVGroup("wide", "sliding", (0,), num_kv_heads=2, head_dim=256, window=8)
    assert split_evenly((GEMMA_FULL, wide)) == (GEMMA_FULL, wide)


def test_location_finds_group_and_place() -> None:
    group, index = GEMMA_270M.location(11)
    assert GEMMA_270M.groups[group].layers[index] == 11
    with pytest.raises(ConfigError, match="layer 99"):
        GEMMA_270M.location(99)


def test_blocks_of_a_sequence_are_bounded_by_windows() -> None:
    assert LLAMA_8B.blocks_per_sequence(33) == 2
    long, longer = (GEMMA_270M.blocks_per_sequence(n) for n in (10_000, 20_000))
    assert longer - long == -(-20_000 // 32) - -(-10_000 // 32)  # only the full group grows


def test_a_state_group_costs_the_same_at_any_length() -> None:
    state = KVGroup("state", "state", (0, 1), state_bytes=1000)
    spec = KVCacheSpec((state,))
    assert kv_bytes(spec, 1) == kv_bytes(spec, 10_000) == 2000
    assert spec.page_bytes == 2000


@pytest.mark.parametrize(
    "groups",
    [
        (GEMMA_FULL, KVGroup("again", "full", (5,), num_kv_heads=1, head_dim=256)),
        (KVGroup("sliding", "sliding", (0,), num_kv_heads=1, head_dim=2),),
        (KVGroup("state", "state", (0,), state_bytes=4, checkpoint_interval=33),),
    ],
)
def test_contradictory_groups_are_refused(groups: tuple[KVGroup, ...]) -> None:
    with pytest.raises(ConfigError):
        KVCacheSpec(groups)
=======
GiB = 1 << 30


def llama_8b() -> KVCacheSpec:
    return KVCacheSpec((KVGroup("full", "full", tuple(range(32)), 8, 128),))


def gemma_270m() -> tuple[KVGroup, ...]:
    full = (5, 11, 17)
    sliding = tuple(layer for layer in range(18) if layer not in full)
    return (
        KVGroup("sliding", "sliding", sliding, 1, 256, window=512),
        KVGroup("full", "full", full, 1, 256),
    )


def test_bytes_of_llama_8b() -> None:
    spec = llama_8b()
    assert kv_bytes(spec, 1) == 131_072
    assert kv_bytes(spec, 4096) == 512 << 20
    assert kv_bytes(spec, 131_072) == 16 * GiB
    assert spec.page_bytes == 32 * 131_072


def test_a_window_bounds_the_bytes() -> None:
    spec = KVCacheSpec(gemma_270m())
    assert kv_bytes(spec, 32_768) == (15 * 512 + 3 * 32_768) * 1024


def test_groups_are_split_to_blocks_of_one_size() -> None:
    groups = split_evenly(gemma_270m())
    assert [len(group.layers) for group in groups] == [3] * 6
    assert {group.bytes_per_block(32) for group in groups} == {3 * 1024 * 32}
    spec = KVCacheSpec(groups)
    assert sorted(spec.location(layer)[0] for layer in range(18)) == sorted([*range(6)] * 3)


def test_first_needed_position() -> None:
    assert [sliding_group(0, 4).first_needed(p) for p in (0, 3, 4, 10)] == [0, 0, 1, 7]
    assert full_group().first_needed(10) == 0


def test_blocks_of_a_sequence() -> None:
    assert KVCacheSpec((full_group(),), 4).blocks_per_sequence(17) == 5
    assert KVCacheSpec((state_group(0, 8),), 4).blocks_per_sequence(1000) == 2
    bounded = KVCacheSpec((sliding_group(0, 6),), 4).blocks_per_sequence(1000, 4)
    assert bounded == KVCacheSpec((sliding_group(0, 6),), 4).blocks_per_sequence(2000, 4) == 5


def test_faulty_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match="two KV groups"):
        KVCacheSpec((full_group(0), sliding_group(0, 4)))
    with pytest.raises(ConfigError, match="no window"):
        KVCacheSpec((KVGroup("s", "sliding", (0,)),))
    with pytest.raises(ConfigError, match="not a multiple"):
        KVCacheSpec((state_group(0, 6),), 4)
    with pytest.raises(ConfigError, match="layer 7"):
        KVCacheSpec((full_group(0),)).location(7)
>>>>>>> scheduler
