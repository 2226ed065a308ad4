"""Bytes and blocks of KV groups."""

from __future__ import annotations

import pytest

from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec, KVGroup, kv_bytes, split_evenly
from tests.fakes import full_group, sliding_group, state_group

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


@pytest.mark.parametrize(("head_dim", "share"), [(64, 33 / 64), (128, 65 / 128), (256, 129 / 256)])
def test_q8_takes_half_of_float16_and_a_scale_for_each_head(head_dim: int, share: float) -> None:
    half, q8 = (KVGroup("full", "full", (0, 1), 3, head_dim, t, t) for t in ("float16", "q8"))
    assert q8.bytes_per_token == 2 * 3 * 2 * (head_dim + 2) == share * half.bytes_per_token
    assert q8.layer_bytes_per_token == 3 * 2 * (head_dim + 2)
    assert kv_bytes(KVCacheSpec((q8,)), 4096) == 4096 * q8.bytes_per_token
    assert KVCacheSpec((q8,)).page_bytes == 32 * q8.bytes_per_token


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
