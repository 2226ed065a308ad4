import ml_dtypes
import numpy as np
import pytest

from firstword.batch import CopySpan
from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.kvcache.storage import PagedStorage

BLOCK = 32
MIXED = KVCacheSpec(
    (
        KVGroup("full", "full", (0, 2), 2, 8, "bfloat16", "float32"),
        KVGroup("near", "sliding", (1,), 4, 8, "float16", "float16", window=48),
        KVGroup("state", "state", (3, 4), state_bytes=33),
    )
)


def filled(num_blocks: int = 5, seed: int = 0) -> PagedStorage:
    storage = PagedStorage(MIXED, num_blocks)
    rng = np.random.default_rng(seed)
    for block in range(num_blocks):
        storage.write_block(block, rng.bytes(MIXED.page_bytes))
    return storage


def test_sizes() -> None:
    storage = PagedStorage(MIXED, 5)
    assert MIXED.page_bytes == BLOCK * 2 * 2 * 8 * (2 + 4)
    assert storage.nbytes == 5 * MIXED.page_bytes
    assert (storage.num_blocks, storage.spec) == (5, MIXED)


def test_views_have_the_types_and_shapes_of_their_group() -> None:
    storage = PagedStorage(MIXED, 5)
    assert storage.keys(0).values.shape == storage.values(0).values.shape == (5, 2, 2, BLOCK, 8)
    assert storage.keys(0).values.dtype == ml_dtypes.bfloat16
    assert storage.values(0).values.dtype == np.float32
    assert storage.keys(1).values.shape == (5, 1, 4, BLOCK, 8)
    assert storage.keys(1).values.dtype == np.float16
    assert storage.state(2).shape == (5, 2, 33)
    assert storage.state(2).dtype == np.uint8


def test_a_new_pool_is_zero() -> None:
    storage = PagedStorage(MIXED, 3)
    assert not storage.keys(0).values.any()
    assert not any(storage.read_block(2))


def test_what_a_view_writes_lies_in_its_block_alone() -> None:
    storage = PagedStorage(MIXED, 3)
    storage.keys(0).values[1] = 1
    storage.values(0).values[1] = 2
    assert not any(storage.read_block(0)) and not any(storage.read_block(2))
    content = np.frombuffer(storage.read_block(1), dtype=np.uint8)
    num_keys = 2 * 2 * BLOCK * 8
    assert (content[: 2 * num_keys].view(ml_dtypes.bfloat16) == 1).all()
    assert (content[2 * num_keys :].view(np.float32) == 2).all()


def test_keys_and_values_of_a_group_do_not_overlap() -> None:
    storage = filled()
    before = storage.values(1).values.copy()
    storage.keys(1).values[:] = 0
    np.testing.assert_array_equal(storage.values(1).values, before)


def test_one_head_of_one_block_is_one_run_of_memory() -> None:
    assert PagedStorage(MIXED, 2).keys(1).values[1, 0, 3].flags.c_contiguous


@pytest.mark.parametrize("count", [BLOCK, 1, 31])
def test_copy_brings_the_first_tokens_of_every_layer(count: int) -> None:
    storage = filled()
    source = storage.read_block(3)
    others = [storage.read_block(b) for b in (0, 2, 4)]
    keys, values = storage.keys(0).values[3].copy(), storage.values(0).values[3].copy()
    storage.copy(CopySpan(3, 1, count))
    np.testing.assert_array_equal(
        storage.keys(0).values[1, :, :, :count].view(np.uint16), keys[:, :, :count].view(np.uint16)
    )
    np.testing.assert_array_equal(
        storage.values(0).values[1, :, :, :count].view(np.uint32),
        values[:, :, :count].view(np.uint32),
    )
    assert storage.read_block(3) == source
    assert [storage.read_block(b) for b in (0, 2, 4)] == others


def test_copy_brings_a_state_whole() -> None:
    storage = filled()
    state = storage.state(2)[4].copy()
    storage.copy(CopySpan(4, 0, 1))
    np.testing.assert_array_equal(storage.state(2)[0], state)


def test_a_block_survives_reading_and_writing() -> None:
    storage, other = filled(seed=1), PagedStorage(MIXED, 2)
    content = storage.read_block(3)
    assert isinstance(content, bytes) and len(content) == MIXED.page_bytes
    other.write_block(1, content)
    assert other.read_block(1) == content
    assert not any(other.read_block(0))


def test_content_of_another_length_is_refused() -> None:
    storage = PagedStorage(MIXED, 2)
    with pytest.raises(ConfigError, match=f"7 bytes.*{MIXED.page_bytes}"):
        storage.write_block(0, b"1234567")
    assert not any(storage.read_block(0))


def test_a_negative_number_of_blocks_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_blocks is -1"):
        PagedStorage(MIXED, -1)


def test_no_blocks_and_no_groups_are_fine() -> None:
    assert PagedStorage(MIXED, 0).keys(0).values.shape[0] == 0
    assert PagedStorage(KVCacheSpec(()), 3).nbytes == 0


def test_q8_has_codes_and_scales_of_their_own_bytes() -> None:
    group = KVGroup("full", "full", (0, 2), 3, 16, "q8", "q8")
    storage = PagedStorage(KVCacheSpec((group,)), 2)
    parts = []
    for view in (storage.keys(0), storage.values(0)):
        assert view.scales is not None
        parts += [view.values, view.scales]
    for number, part in enumerate(parts, start=1):
        part[1] = number
    assert [part.dtype for part in parts] == [np.int8, np.float16] * 2
    assert parts[0].shape == (2, 2, 3, BLOCK, 16)
    assert parts[1].shape == (2, 2, 3, BLOCK)
    assert [bool((part[1] == n).all()) for n, part in enumerate(parts, start=1)] == [True] * 4
    content = np.frombuffer(storage.read_block(1), np.uint8)
    assert len(content) == group.bytes_per_token * 32
    assert (content != 0).sum() == 2 * 2 * 3 * 32 * (16 + 1), "a half of these has one zero byte"
    assert not any(part[0].any() for part in parts)
