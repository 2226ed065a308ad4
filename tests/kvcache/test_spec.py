from __future__ import annotations

import pytest

from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec, KVGroup, kv_bytes, split_evenly

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
