"""8-bit keys and values: the definition, its extremes, and what the rotation is for."""

from __future__ import annotations

import numpy as np
import pytest

from firstword.batch import Float32Array
from firstword.ops.int8_kv import (
    quantize_keys,
    quantize_values,
    rotate,
    rotation_size,
    round_queries,
)
from tests.ops.builders import normal


def hadamard(size: int) -> Float32Array:
    """Sylvester's matrix of ones and minus ones."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


@pytest.mark.parametrize(
    ("head_dim", "size"), [(16, 16), (48, 16), (64, 64), (80, 16), (96, 32), (256, 256)]
)
def test_the_rotation_is_a_hadamard_matrix_on_each_run(head_dim: int, size: int) -> None:
    assert rotation_size(head_dim) == size
    x = np.random.default_rng(1).integers(-50, 50, (3, 2, head_dim)).astype(np.float32)
    expected = x.reshape(3, 2, -1, size) @ hadamard(size)
    np.testing.assert_array_equal(rotate(x), expected.reshape(x.shape))


def test_rotated_vectors_keep_their_dot_products() -> None:
    q, k = normal(0, 4, 96), normal(1, 4, 96)
    products = (rotate(q).astype(np.float64) * rotate(k)).sum(axis=-1)
    expected = 32 * (q.astype(np.float64) * k).sum(axis=-1)
    np.testing.assert_allclose(products, expected, rtol=1e-5, atol=1e-4)


def test_codes_and_scales_are_those_of_the_definition() -> None:
    sizes = np.array([1, 40, 1e-3, 600, 1e4], np.float32)
    x = normal(0, 5, 2, 64) * sizes[:, None, None]
    codes, scales = quantize_values(x)
    assert [codes.dtype.name, scales.dtype.name] == ["int8", "float16"]
    for head, code, scale in zip(
        x.reshape(-1, 64), codes.reshape(-1, 64), scales.flat, strict=True
    ):
        largest = max(abs(float(value)) for value in head)
        assert scale == np.float16(np.float32(largest) / np.float32(127))
        by_hand = [round(float(np.float32(value) / np.float32(scale))) for value in head]
        assert code.tolist() == [max(-127, min(127, value)) for value in by_hand]


def test_keys_are_rotated_before_they_are_quantized() -> None:
    k = normal(3, 4, 2, 64)
    for ours, expected in zip(quantize_keys(k), quantize_values(rotate(k)), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_extremes() -> None:
    x = np.zeros((6, 16), np.float32)
    x[1, 3] = 1e-7  # its scale is below the smallest half
    x[2, 3] = 1e-5  # its scale is the smallest half: codes are clamped
    x[3, 3] = -np.inf
    x[4, 3] = np.nan
    x[5, :4] = 3e38, -3e38, 65504, 16376
    codes, scales = quantize_values(x)
    assert scales[:3].tolist() == [0, 0, 2**-24]
    assert codes[:2].any() == codes[4].any() == np.False_
    assert (codes[2, 3], codes[3, 3]) == (127, -127)
    assert np.isnan(scales[4])
    assert codes[5, :4].tolist() == [127, -127, 127, 32]
    _, scales = quantize_keys(np.full((1, 256), 65504, np.float32))
    assert scales.tolist() == [65504], "256 x 65504 / 127 is beyond float16"


def test_queries_with_an_infinity_say_so() -> None:
    q = normal(0, 3, 16)
    q[0, 2], q[1, 5] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        rounded = round_queries(q)
    assert np.isnan(rounded[:2]).all()
    assert not round_queries(np.zeros_like(q)).any()
    np.testing.assert_allclose(rounded[2], rotate(q[2]) / 16, atol=0.02)


def test_a_large_channel_does_not_cost_the_others_their_bits() -> None:
    rng = np.random.default_rng(5)
    q, k = (rng.standard_normal((200, 64), dtype=np.float32) for _ in range(2))
    k[:, 7] += 40  # the same channel of every key, as in trained models
    exact = q.astype(np.float64) @ k.T

    def error(queries: Float32Array, stored: tuple[np.ndarray, np.ndarray]) -> float:
        codes, scales = stored
        keys = codes.astype(np.float64) * scales[:, None].astype(np.float64)
        return float(np.abs(queries @ keys.T - exact).mean())

    rotated = error(round_queries(q), quantize_keys(k))
    assert rotated < 0.4 * error(q, quantize_values(k))
