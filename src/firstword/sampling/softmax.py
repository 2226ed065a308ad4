"""Exponentials, sums and a logarithm whose bits are the same on every machine.

Everything here is made of single IEEE 754 operations (add, subtract, multiply, divide, round,
scale by a power of two), none fused and none from a maths library, in an order that is written
down: a native twin that follows it gets the same bits. Not here: which tokens are kept.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array

CHUNK = 4096
"""Entries whose weights are summed on their own before the sums are added up."""

_BLOCK = 16_384  # entries per pass: the temporaries stay in the second-level cache
_LOWEST = np.float32(-87.0)  # exp of less is below the smallest normal number: taken as 0
_LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two parts; the first has so few bits that n * _LN2_HIGH is exact for |n| <= 126.
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(math.log(2) - 0.693359375)
_TAYLOR = tuple(np.float32(1 / math.factorial(i)) for i in range(7, -1, -1))


def softmax_weights(logits: Float32Array, temperature: float) -> Float32Array:
    """The numerators of a softmax: exp((logit - largest logit) / temperature).

    In single precision, for each entry: z = (x - max) / T; 0 where z < -87; else with
    n = rint(z * log2 e), r = (z - n * high) - n * low (ln 2 in two parts) and the Taylor
    polynomial of degree 7 in r by Horner's rule, the result is polynomial * 2**n. The relative
    error is below 2e-7 of exp(z).

    Args:
        logits: [V], finite or -inf, at least one finite.
        temperature: above 0.

    Returns:
        [V] weights in [0, 1]; the largest logit has weight 1.
    """
    weights = np.empty_like(logits)
    largest = logits.max()
    # A temperature too small for single precision acts like the smallest one that is not.
    divisor = max(np.float32(temperature), np.finfo(np.float32).tiny)
    with np.errstate(over="ignore"):  # -inf is what becomes of a huge distance
        for start in range(0, len(logits), _BLOCK):
            z = logits[start : start + _BLOCK] - largest
            if divisor != 1:
                z /= divisor
            _exp(z, weights[start : start + _BLOCK])
    return weights


def _exp(z: Float32Array, out: Float32Array) -> None:
    """exp(z) for z <= 0 into `out`, as `softmax_weights` describes."""
    r = np.maximum(z, _LOWEST)
    n = r * _LOG2_E
    np.rint(n, out=n)
    r -= n * _LN2_HIGH
    r -= n * _LN2_LOW
    np.multiply(r, _TAYLOR[0], out=out)
    for coefficient in _TAYLOR[1:-1]:
        out += coefficient
        out *= r
    out += _TAYLOR[-1]
    exponent_bits = (n.astype(np.int32) + 127) << 23
    out *= exponent_bits.view(np.float32)
    out *= z >= _LOWEST


def chunk_sums(weights: Float32Array) -> NDArray[np.float64]:
    """Sum each chunk of 4,096 entries in double precision, by folding.

    The chunk (its end filled up with zeros) is halved twelve times: entry i of the first half
    takes up entry i of the second.

    Args:
        weights: [V].

    Returns:
        [ceil(V / 4096)] sums.
    """
    whole = len(weights) // CHUNK * CHUNK
    sums = np.empty(-(-len(weights) // CHUNK), np.float64)
    for start in range(0, whole, _BLOCK):
        block = weights[start : min(start + _BLOCK, whole)].reshape(-1, CHUNK)
        first = start // CHUNK
        sums[first : first + len(block)] = _fold(block)
    if whole < len(weights):
        last = np.zeros((1, CHUNK), np.float32)
        last[0, : len(weights) - whole] = weights[whole:]
        sums[-1:] = _fold(last)
    return sums


def _fold(chunks: Float32Array) -> NDArray[np.float64]:
    """[C, 4096] -> [C]: the fold that `chunk_sums` describes."""
    folded = chunks.astype(np.float64)
    while folded.shape[1] > 1:
        half = folded.shape[1] // 2
        folded = folded[:, :half] + folded[:, half:]
    return folded[:, 0]


def running_sums(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Add up [K] values one after the other in double precision; [K] sums so far."""
    return np.cumsum(values, dtype=np.float64)


def total(weights: Float32Array) -> float:
    """The sum of [V] weights: the chunks' sums, added one after the other."""
    return float(running_sums(chunk_sums(weights))[-1])


def log(x: float) -> float:
    """Natural logarithm of a positive finite number.

    With x = m * 2**e, sqrt(1/2) <= m < sqrt(2), and s = (m - 1) / (m + 1):
    ln x = e ln 2 + 2 (s + s**3/3 + s**5/5 + ... + s**23/23), by Horner's rule in s**2.
    """
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = mantissa * 2, exponent - 1
    s = (mantissa - 1) / (mantissa + 1)
    square = s * s
    series = 0.0
    for k in range(23, 0, -2):
        series = series * square + 1 / k
    return exponent * 0.6931471805599453 + 2 * s * series


def log_sum_exp(logits: Float32Array) -> float:
    """log of the sum of exp(logits): the largest logit + log of the weights' total.

    Args:
        logits: [V], finite or -inf, at least one finite.
    """
    return float(logits.max()) + log(total(softmax_weights(logits, 1.0)))
