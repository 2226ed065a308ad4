from __future__ import annotations

import pytest

from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.ops.native import NativeOps
from firstword.ops.native_kv import NativeKVPool
from tests.ops.builders import one_group

SPEC = one_group(2, 16, "float16", num_layers=3)


def test_a_block_comes_back_as_it_was_written() -> None:
    ops = NativeOps()
    pool = ops.new_kv_pool(SPEC, 4)
    content = bytes(range(256)) * (SPEC.page_bytes // 256)
    ops.write_block(pool, 2, content)
    assert ops.read_block(pool, 2) == content
    assert ops.read_block(pool, 1) == ops.read_block(pool, 3) == bytes(SPEC.page_bytes)


def test_pages_of_codes_hold_their_scales_too() -> None:
    pool = NativeKVPool(one_group(2, 16, "q8", num_layers=3), 5)
    assert pool.nbytes == 5 * 32 * 3 * 2 * 2 * (16 + 2)


def test_it_knows_its_size() -> None:
    pool = NativeKVPool(SPEC, 5)
    assert (pool.spec, pool.num_blocks, pool.nbytes) == (SPEC, 5, 5 * SPEC.page_bytes)
    assert NativeKVPool(SPEC, 0).nbytes == 0


def test_what_does_not_fit_is_refused() -> None:
    pool = NativeKVPool(SPEC, 2)
    with pytest.raises(
        ConfigError, match=f"has 3 bytes, but a page of this pool has {SPEC.page_bytes}"
    ):
        pool.write_block(0, b"abc")
    with pytest.raises(IndexError):
        pool.read_block(2)
    with pytest.raises(ConfigError, match="num_blocks is -1"):
        NativeKVPool(SPEC, -1)
    with pytest.raises(ConfigError, match=r'kv_dtype is float32.*numerics="blas"'):
        NativeKVPool(one_group(2, 16, "float32"), 1)
    with pytest.raises(ConfigError, match=r"q8 and head_dim 1024: .* up to 512"):
        NativeKVPool(one_group(2, 1024, "q8"), 1)
    mixed = KVCacheSpec((KVGroup("full", "full", (0,), 1, 16, "float16", "q8"),))
    with pytest.raises(ConfigError, match="stored as float16 and q8"):
        NativeKVPool(mixed, 1)
    with pytest.raises(ConfigError, match="block_size is 16"):
        NativeKVPool(KVCacheSpec(SPEC.groups, 16), 1)
