from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from benchmarks.random_blocks import SUPPORTED, RandomBlocks, Type, row_bytes


@pytest.mark.parametrize("ggml_type", SUPPORTED)
def test_values_are_finite_and_have_the_spread_asked_for(ggml_type: Type) -> None:
    rows = RandomBlocks(7).rows(64, 1024, ggml_type, 0.02)
    assert rows.shape == (64, row_bytes(1024, ggml_type))
    if ggml_type in (Type.F32, Type.F16):
        values = rows.view("<f4" if ggml_type == Type.F32 else "<f2").astype(np.float64)
    else:
        values = dequantize(rows, ggml_type).astype(np.float64)
    assert values.shape == (64, 1024)
    assert np.isfinite(values).all()
    tolerance = 0.35 if ggml_type == Type.MXFP4 else 0.1  # its scales are powers of two
    assert values.std() == pytest.approx(0.02, rel=tolerance)
    assert abs(values.mean()) < 0.002


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again = (RandomBlocks(3).rows(8, 256, Type.Q4_K, 0.02) for _ in range(2))
    other = RandomBlocks(4).rows(8, 256, Type.Q4_K, 0.02)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_scales_of_blocks_differ() -> None:
    blocks = RandomBlocks().rows(4, 4096, Type.Q8_0, 0.02).reshape(-1, 34)
    scales = blocks[:, :2].copy().view("<f2")
    assert len(np.unique(scales)) > 100


def test_a_row_is_a_whole_number_of_blocks() -> None:
    assert row_bytes(512, Type.Q6_K) == 2 * gguf.GGML_QUANT_SIZES[Type.Q6_K][1]
    with pytest.raises(ValueError, match="640"):
        row_bytes(640, Type.Q6_K)
