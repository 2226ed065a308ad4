from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword.batch import Float32Array
from firstword.sampling import softmax


def _row(size: int, spread: float = 5.0, seed: int = 0) -> Float32Array:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("size", [1, 4095, 4096, 50_000])
def test_weights_are_exponentials(size: int, temperature: float) -> None:
    logits = _row(size)
    z = (logits - logits.max()) / np.float32(temperature)  # single precision, as documented
    expected = np.where(z < -87, 0, np.exp(z.astype(np.float64)))
    np.testing.assert_allclose(softmax.softmax_weights(logits, temperature), expected, rtol=2e-7)


def test_weights_at_the_extremes() -> None:
    logits = np.array([-np.inf, 3e38, -3e38, 3e38, 0], np.float32)
    assert softmax.softmax_weights(logits, 1.0).tolist() == [0, 1, 0, 1, 0]
    tiny = softmax.softmax_weights(np.array([1, 1, 0.999], np.float32), 1e-300)
    assert tiny.tolist() == [1, 1, 0]
    border = softmax.softmax_weights(np.array([0, -87, -87.001], np.float32), 1.0)
    assert border[1] == pytest.approx(math.exp(-87), rel=2e-7)
    assert border[2] == 0


def test_a_weight_does_not_depend_on_its_place_or_its_neighbours() -> None:
    logits = _row(70_000)
    whole = softmax.softmax_weights(logits, 0.9)
    top = int(logits.argmax())
    for index in (0, 1, 16_383, 16_384, 69_999):
        pair = softmax.softmax_weights(logits[[top, index]], 0.9)
        assert pair[1] == whole[index]


@pytest.mark.parametrize("size", [1, 3, 4096, 4097, 20_000])
def test_chunks_are_folded_in_halves(size: int) -> None:
    weights = softmax.softmax_weights(_row(size), 1.0)
    expected = []
    for start in range(0, size, 4096):
        chunk = [float(w) for w in weights[start : start + 4096]]
        chunk += [0.0] * (4096 - len(chunk))
        while len(chunk) > 1:
            half = len(chunk) // 2
            chunk = [a + b for a, b in zip(chunk[:half], chunk[half:], strict=True)]
        expected += chunk
    assert softmax.chunk_sums(weights).tolist() == expected
    total = 0.0
    for value in expected:
        total += value
    assert softmax.total(weights) == total


@settings(deadline=None)  # a busy machine is no failure
@given(st.floats(1e-30, 1e30))
def test_log(x: float) -> None:
    assert softmax.log(x) == pytest.approx(math.log(x), rel=4e-16, abs=4e-16)


def test_log_near_one_and_at_powers_of_two() -> None:
    assert softmax.log(1.0) == 0
    for x in (1 - 2**-53, 1 + 2**-52, 0.5, 2.0, math.sqrt(2), math.sqrt(0.5), 2.0**-1000):
        assert softmax.log(x) == pytest.approx(math.log(x), rel=4e-16)


def test_log_sum_exp() -> None:
    logits = _row(10_000)
    expected = math.log(math.fsum(math.exp(float(x)) for x in logits))
    assert softmax.log_sum_exp(logits) == pytest.approx(expected, abs=1e-6)


def test_bits_do_not_move() -> None:
    """Values written down once: another machine or numpy must give the same bits."""
    steps = (np.arange(5000) * 2654435761 % 4096).astype(np.float32)
    logits = (steps - np.float32(2048)) / np.float32(128)
    weights = softmax.softmax_weights(logits, 0.7)
    assert [float(w).hex() for w in weights[[1, 2, 17, 4999]]] == EXPECTED_WEIGHTS
    assert softmax.total(weights).hex() == EXPECTED_TOTAL
    assert softmax.log_sum_exp(logits).hex() == EXPECTED_LOG_SUM


EXPECTED_WEIGHTS = [
    "0x1.022b060000000p-26",
    "0x1.0176f00000000p-52",
    "0x1.94764e0000000p-47",
    "0x1.3a122c0000000p-3",
]
EXPECTED_TOTAL = "0x1.bead348e1c1dep+6"
EXPECTED_LOG_SUM = "0x1.50ed3a69de572p+4"
