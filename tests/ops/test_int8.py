import numpy as np
import pytest

from firstword.batch import Float32Array
from firstword.ops import int8
from firstword.ops.fma import fma32
from firstword.ops.int8 import int8_linear, quantize_activations
from firstword.quant import INTEGER_TYPES, GGMLType, IntegerBlocks, dequantize, integer_blocks
from tests.ops.builders import normal, random_tensor, same_bits

TYPES = sorted(INTEGER_TYPES)


def by_hand(x: Float32Array, weight: IntegerBlocks) -> Float32Array:
    """The definition, one number at a time, with Python's integers."""
    size, group = weight.block_size, weight.group_size
    codes, scales = quantize_activations(x, size)
    out = np.zeros((len(x), len(weight.quants)), dtype=np.float32)
    for t, o in np.ndindex(out.shape):
        acc = np.float32(0)
        q = [int(value) for value in weight.quants[o]]
        a = [int(value) for value in codes[t]]
        for b in range(len(q) // size):
            isum = msum = 0
            for start in range(b * size, (b + 1) * size, group):
                part = slice(start, start + group)
                dot = sum(i * j for i, j in zip(q[part], a[part], strict=True))
                isum += int(weight.scales[o, start // group]) * dot
                if weight.mins is not None:
                    msum += int(weight.mins[o, start // group]) * sum(a[part])
            acc = np.float32(fma32(weight.d[o, b] * scales[t, b], np.float32(isum), acc))
            if weight.dmin is not None:
                factor = -(weight.dmin[o, b] * scales[t, b])
                acc = np.float32(fma32(factor, np.float32(msum), acc))
        out[t, o] = acc
    return out


@pytest.mark.parametrize("ggml_type", TYPES)
def test_equals_the_definition_bit_for_bit(ggml_type: GGMLType) -> None:
    weight = integer_blocks(random_tensor(ggml_type, (5, 512)))
    x = normal(0, 3, 512)
    assert same_bits(int8_linear(x, weight), by_hand(x, weight))


@pytest.mark.parametrize("ggml_type", TYPES)
def test_largest_sums_stay_exact(ggml_type: GGMLType) -> None:
    """Every integer near the end of its range: nothing overflows or is rounded early."""
    weight = integer_blocks(random_tensor(ggml_type, (2, 256)))
    near_the_end = np.random.default_rng(0).integers(0, 2, weight.quants.shape, dtype=np.int8)
    extreme = IntegerBlocks(
        quants=weight.quants.min() + near_the_end,
        scales=np.full_like(weight.scales, weight.scales.max()),
        d=weight.d,
        mins=None if weight.mins is None else np.full_like(weight.mins, weight.mins.max()),
        dmin=weight.dmin,
    )
    x = np.random.default_rng(1).uniform(2.8, 3.0, (4, 256)).astype(np.float32)
    assert same_bits(int8_linear(x, extreme), by_hand(x, extreme))


@pytest.mark.parametrize("ggml_type", TYPES)
def test_close_to_the_float_product(ggml_type: GGMLType) -> None:
    tensor = random_tensor(ggml_type, (64, 512))
    x = normal(1, 4, 512)
    exact = np.einsum("td,od->to", x.astype(np.float64), dequantize(tensor).astype(np.float64))
    error = np.abs(int8_linear(x, integer_blocks(tensor)) - exact).max()
    assert error < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("ggml_type", TYPES)
def test_rows_do_not_depend_on_their_neighbours(
    ggml_type: GGMLType, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = integer_blocks(random_tensor(ggml_type, (33, 512)))
    x = normal(2, 9, 512)
    together = int8_linear(x, weight)
    alone = np.concatenate([int8_linear(x[t : t + 1], weight) for t in range(9)])
    assert same_bits(together, alone)
    monkeypatch.setattr(int8, "_MAX_OUTPUTS", 4 * 33)
    assert same_bits(int8_linear(x, weight), together)


@pytest.mark.parametrize("num_inputs", [1, 255, 256, 257, 600])
def test_float_weights_add_in_chunks_of_256(num_inputs: int) -> None:
    weight, x = normal(3, 4, num_inputs), normal(4, 2, num_inputs)
    out = int8_linear(x, weight)
    for t, o in np.ndindex(2, 4):
        total = np.float32(0)
        for start in range(0, num_inputs, 256):
            acc = np.float32(0)
            for k in range(start, min(start + 256, num_inputs)):
                acc = np.float32(fma32(x[t, k], weight[o, k], acc))
            total += acc
        assert out[t, o] == total
    np.testing.assert_allclose(out, x @ weight.T, atol=1e-4)


def test_codes_reach_127_and_round_half_to_even() -> None:
    x = np.zeros((1, 32), dtype=np.float32)
    x[0, :7] = [127, -127, 0.5, 1.5, 2.5, -0.5, -1.5]
    codes, scales = quantize_activations(x, 32)
    assert scales.tolist() == [[1.0]]
    assert codes[0, :7].tolist() == [127, -127, 0, 2, 2, 0, -2]
    assert codes.dtype == np.int8 and scales.dtype == np.float32


@pytest.mark.parametrize("run", [32, 256])
def test_each_run_of_each_row_has_its_own_scale(run: int) -> None:
    x = normal(5, 4, 512)
    codes, scales = quantize_activations(x, run)
    runs = x.reshape(4, -1, run)
    np.testing.assert_array_equal(scales, np.abs(runs).max(axis=-1) / np.float32(127))
    restored = codes.reshape(runs.shape) * scales[..., None]
    assert (np.abs(restored - runs) <= scales[..., None] * 0.501).all()
    assert (np.abs(codes.reshape(runs.shape)).max(axis=-1) == 127).all()


def test_zeros_and_vanishing_values_have_scale_and_codes_zero() -> None:
    x = np.zeros((2, 32), dtype=np.float32)
    x[1] = 1e-45  # a 127th of the smallest float32 is zero
    codes, scales = quantize_activations(x, 32)
    assert not codes.any() and not scales.any()


def test_subnormal_scales_stay_within_the_codes() -> None:
    x = (normal(6, 8, 32) * np.float32(1e-43)).astype(np.float32)
    codes, _ = quantize_activations(x, 32)
    assert np.abs(codes.astype(int)).max() <= 127


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_shows_in_its_row_alone(bad: float) -> None:
    weight = integer_blocks(random_tensor(GGMLType.Q4_1, (3, 64)))
    x = normal(7, 3, 64)
    good = int8_linear(x, weight)
    x[1, 40] = bad
    out = int8_linear(x, weight)
    assert np.isnan(out[1]).all()
    assert same_bits(out[[0, 2]], good[[0, 2]])
