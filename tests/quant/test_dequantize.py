from fractions import Fraction

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from firstword.quant import (
    DEQUANTIZABLE,
    INTEGER_TYPES,
    GGMLType,
    RawTensor,
    dequantize,
    dequantize_rows,
    integer_blocks,
)
from tests.weights.tiny_gguf import HALVES

ALL = sorted(DEQUANTIZABLE)
INTEGER = sorted(INTEGER_TYPES)


def random_tensor(
    ggml_type: GGMLType, shape: tuple[int, int] = (37, 1024), *, seed: int = 0, tame: bool = False
) -> RawTensor:
    """Random bytes; `tame` gives ordinary scales instead of any half-precision number."""
    rng = np.random.default_rng([seed, ggml_type])
    blocks = shape[0] * shape[1] // ggml_type.block_size
    data = rng.integers(0, 256, (blocks, ggml_type.type_size), dtype=np.uint8)
    if tame:
        for start in HALVES[ggml_type]:
            scale = rng.normal(0, 0.1, (blocks, 1)).astype("<f2")
            data[:, start : start + 2] = scale.view(np.uint8)
        if ggml_type == GGMLType.MXFP4:
            data[:, :1] = rng.integers(116, 124, (blocks, 1))
    data = data.reshape(-1)
    data.flags.writeable = False
    return RawTensor("w", shape, ggml_type, data)


def oracle(tensor: RawTensor) -> NDArray[np.float32]:
    qtype = gguf.GGMLQuantizationType(tensor.type.value)
    with np.errstate(all="ignore"):
        out: NDArray[np.float32] = gguf.dequantize(tensor.rows, qtype).reshape(tensor.shape)
    return out


def assert_same_bits(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    assert ours.dtype == theirs.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    number = ~np.isnan(theirs)  # the payload of a NaN depends on the order of operands
    np.testing.assert_array_equal(ours[number].view(np.uint32), theirs[number].view(np.uint32))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ggml_type", ALL, ids=lambda t: t.name)
def test_equals_the_gguf_package_bit_for_bit(ggml_type: GGMLType, seed: int) -> None:
    tensor = random_tensor(ggml_type, seed=seed)
    assert_same_bits(dequantize(tensor), oracle(tensor))


@pytest.mark.parametrize("ggml_type", ALL, ids=lambda t: t.name)
def test_more_than_one_chunk_and_an_odd_rest(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type, (131, 1280))
    assert_same_bits(dequantize(tensor), oracle(tensor))


@pytest.mark.parametrize("ggml_type", ALL, ids=lambda t: t.name)
def test_rows_are_those_of_the_whole(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type)
    rows = [36, 0, 5, 5]
    assert_same_bits(dequantize_rows(tensor, rows), dequantize(tensor)[rows])
    assert dequantize_rows(tensor, []).shape == (0, 1024)
    for outside in (37, -1):
        with pytest.raises(IndexError):
            dequantize_rows(tensor, [0, outside])


@pytest.mark.parametrize("ggml_type", ALL, ids=lambda t: t.name)
def test_bytes_that_are_not_aligned(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type, (4, 256))
    shifted = np.concatenate([np.zeros(1, np.uint8), tensor.data])[1:]
    moved = RawTensor("w", tensor.shape, ggml_type, shifted)
    assert_same_bits(dequantize(moved), dequantize(tensor))


@pytest.mark.parametrize("ggml_type", [GGMLType.IQ2_XS, GGMLType.TQ1_0, GGMLType.I8])
def test_types_not_built_are_refused_by_name(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type, (1, 256))
    with pytest.raises(ValueError, match=ggml_type.name):
        dequantize(tensor)
    with pytest.raises(ValueError, match=ggml_type.name):
        integer_blocks(tensor)


@pytest.mark.parametrize("ggml_type", INTEGER, ids=lambda t: t.name)
def test_integer_blocks_recombine_to_the_values(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type, (9, 512), tame=True)
    parts = integer_blocks(tensor)
    assert parts.quants.shape == (9, 512)
    assert parts.block_size == ggml_type.block_size
    assert parts.group_size in (16, 32)
    assert (parts.mins is None) == (parts.dmin is None)
    # Products of a half and two small integers are exact in double precision.
    group, block = parts.group_size, parts.block_size
    exact = parts.quants.astype(np.float64)
    exact *= np.repeat(parts.scales, group, axis=1)
    exact *= np.repeat(parts.d, block, axis=1)
    magnitude = np.abs(exact)
    if parts.mins is not None and parts.dmin is not None:
        offset = np.repeat(parts.mins, group, axis=1) * np.repeat(parts.dmin, block, axis=1)
        exact -= offset
        magnitude += np.abs(offset)
    # Three roundings to float32 at the magnitude of the larger term.
    tolerance = 3 * 2.0**-24 * magnitude
    assert np.all(np.abs(dequantize(tensor) - exact) <= tolerance)


@pytest.mark.parametrize("ggml_type", INTEGER, ids=lambda t: t.name)
def test_integer_blocks_are_exact_in_rational_arithmetic(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type, (1, 256), tame=True)
    parts = integer_blocks(tensor)
    for k, value in enumerate(dequantize(tensor)[0]):
        g, b = k // parts.group_size, k // parts.block_size
        term = Fraction(float(parts.d[0, b])) * int(parts.scales[0, g]) * int(parts.quants[0, k])
        if parts.mins is not None and parts.dmin is not None:
            term -= Fraction(float(parts.dmin[0, b])) * int(parts.mins[0, g])
        assert abs(Fraction(float(value)) - term) <= Fraction(1, 2**20)
