"""Norm, rope and activations: accuracy against float64, and equal bits of every body."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from firstword.batch import Float32Array
from firstword.sampling.softmax import softmax_weights
from tests.native.abi import Isa, Kernels, same_bits

LENGTHS = (1, 7, 8, 16, 31, 80, 576, 2049)
SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-40, 87.0, -87.0, -87.00001, 88.8, 3e38, -3e38, np.inf, -np.inf, np.nan],
    dtype=np.float32,
)


def normal(seed: int, *shape: int) -> Float32Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def inputs(n: int) -> Float32Array:
    x = np.float32(4) * normal(n, n)
    x[: len(SPECIAL)] = SPECIAL[:n]
    return x


def run2(kernels: Kernels, isa: Isa, name: str, a: Float32Array, b: Float32Array) -> Float32Array:
    out = np.full_like(a, 7)
    kernels.call(isa, name, a, b, len(a), out)
    return out


def gelu(x: Float32Array) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    z = x.astype(np.float64)
    result: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = (
        0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    )
    return result


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", ["add", "silu_mul", "gelu_mul"])
def test_vector_body_has_the_bits_of_the_scalar_one(
    kernels: Kernels, vectors: Isa, name: str, n: int
) -> None:
    a, b = inputs(n), inputs(n)[::-1].copy()
    expected = run2(kernels, "generic", name, a, b)
    assert same_bits(run2(kernels, vectors, name, a, b), expected)
    in_place = a.copy()
    kernels.call(vectors, name, in_place, b, n, in_place)
    assert same_bits(in_place, expected)


@pytest.mark.parametrize("n", LENGTHS)
def test_vector_softcap_has_the_bits_of_the_scalar_one(
    kernels: Kernels, vectors: Isa, n: int
) -> None:
    a, b = inputs(n), inputs(n)
    kernels.call("generic", "softcap", a, n, 30.0)
    kernels.call(vectors, "softcap", b, n, 30.0)
    assert same_bits(a, b)


@pytest.mark.parametrize("n", LENGTHS)
def test_vector_norm_has_the_bits_of_the_scalar_one(kernels: Kernels, n: int) -> None:
    x, w = normal(1, n), normal(2, n)
    outs = []
    for isa in kernels.isas:
        out = np.empty_like(x)
        kernels.call(isa, "rms_norm", x, w, 1e-5, n, out)
        outs.append(out)
    assert all(same_bits(out, outs[0]) for out in outs)
    exact = x / np.sqrt(np.square(x.astype(np.float64)).mean() + 1e-5) * w
    np.testing.assert_allclose(outs[0], exact, rtol=1e-6, atol=1e-7)


def test_norm_follows_its_written_order(kernels: Kernels) -> None:
    x = normal(3, 67)
    lanes = np.zeros(16, np.float32)
    for i, value in enumerate(x):  # a float64 product of float32 values is exact
        lanes[i % 16] = np.float32(
            np.float64(value) * np.float64(value) + np.float64(lanes[i % 16])
        )
    for width in (8, 4, 2, 1):
        lanes[:width] += lanes[width : 2 * width]
    inverse = np.float32(1) / np.sqrt(lanes[0] / np.float32(67) + np.float32(1e-6))
    for isa in kernels.isas:
        out = np.empty_like(x)
        kernels.call(isa, "rms_norm", x, np.ones_like(x), 1e-6, 67, out)
        np.testing.assert_array_max_ulp(out, x * inverse, 1)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("head_dim", [2, 6, 16, 64, 80, 96, 128, 256])
def test_rope_rotates_pairs(kernels: Kernels, isa: Isa, interleaved: bool, head_dim: int) -> None:
    half = head_dim // 2
    angles = normal(4, half)
    cos, sin = np.cos(angles), np.sin(angles)
    x = normal(5, 3, head_dim)
    pairs = (
        (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
    )
    expected = np.empty_like(x)
    expected[:, pairs[0]] = x[:, pairs[0]] * cos - x[:, pairs[1]] * sin
    expected[:, pairs[1]] = x[:, pairs[1]] * cos + x[:, pairs[0]] * sin
    kernels.call(isa, "rope", x, cos, sin, head_dim, 3, interleaved)
    assert same_bits(x, expected)


def test_exp_has_the_bits_of_the_python_one(kernels: Kernels, isa: Isa) -> None:
    x = np.concatenate(([0.0, -0.0], -np.geomspace(1e-42, 120, 100_001), [-np.inf]))
    x = x.astype(np.float32)
    for temperature in (1.0, 0.7, 1e-30):
        out = np.empty_like(x)
        divisor = float(np.float32(temperature))
        kernels.call(isa, "softmax_weights", x, len(x), 0.0, divisor, out)
        assert same_bits(out, softmax_weights(x, temperature))


def test_accuracy_against_float64(kernels: Kernels, isa: Isa) -> None:
    x = np.linspace(-30, 30, 200_001, dtype=np.float32)
    ones = np.ones_like(x)
    z = x.astype(np.float64)
    silu = z / (1 + np.exp(-z))
    np.testing.assert_allclose(run2(kernels, isa, "silu_mul", x, ones), silu, rtol=5e-7, atol=1e-37)
    np.testing.assert_allclose(
        run2(kernels, isa, "gelu_mul", x, ones), gelu(x), rtol=5e-7, atol=4e-7
    )
    capped = x.copy()
    kernels.call(isa, "softcap", capped, len(x), 1.0)
    np.testing.assert_allclose(capped, np.tanh(z), rtol=0, atol=2e-7)


def test_nan_and_infinity_stay_where_they_are(kernels: Kernels) -> None:
    x = np.zeros(32, np.float32)
    x[3], x[9], x[10] = np.nan, np.inf, -np.inf
    for isa in kernels.isas:
        out = run2(kernels, isa, "silu_mul", x, np.ones_like(x))
        assert np.isnan(out[3]) and out[9] == np.inf and np.isnan(out[10])
        assert np.isfinite(np.delete(out, [3, 9, 10])).all()


def test_instruction_set_units_export_no_weak_symbol(built: tuple[Path, dict[str, Path]]) -> None:
    """The linker may pick a weak symbol's AVX2 copy for everyone."""
    units = {unit: path for unit, path in built[1].items() if unit.startswith("isa/")}
    assert units
    for unit, path in units.items():
        symbols = subprocess.run(["nm", "-C", path], check=True, capture_output=True, text=True)
        weak = [line for line in symbols.stdout.splitlines() if " W " in line or " V " in line]
        assert not weak, f"{unit}: {weak}"
