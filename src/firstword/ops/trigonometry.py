"""Cosine and sine with the same bits on every processor, for the tables of rotary positions.

Library functions may choose other code, and so other bits, on another processor. Here every step
is one IEEE 754 operation in float64, none fused. Not here: the angles (layers.rope).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array

MAX_ANGLE = 2.0**24

# pi / 2 in three parts (Cody and Waite, 1980): the first two have 29 bits, so that their products
# with any whole number below 2^24 are exact.
_PARTS = (
    float.fromhex("0x1.921fb54p+0"),
    float.fromhex("0x1.10b4611p-30"),
    float.fromhex("0x1.4c4c6628b80dcp-59"),
)
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")

# Taylor series in r^2, highest term first; |r| <= pi / 4 leaves less than 1e-16 out.
_COS = tuple((-1) ** k / math.factorial(2 * k) for k in range(8, -1, -1))
_SIN = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(7, -1, -1))

_NUM_AT_ONCE = 1 << 14  # values whose intermediate results stay in a processor's cache


def cos_sin(angles: Float32Array) -> tuple[Float32Array, Float32Array]:
    """Cosines and sines, each within 0.51 units of the last place of float32.

    Args:
        angles: radians, of any shape; below `MAX_ANGLE` in size.

    Returns:
        Two arrays of the shape of `angles`.
    """
    assert np.abs(angles).max(initial=0) < MAX_ANGLE, "an angle is too large to be reduced"
    flat = angles.reshape(-1)
    cos, sin = np.empty_like(flat), np.empty_like(flat)
    for start in range(0, len(flat), _NUM_AT_ONCE):
        part = slice(start, start + _NUM_AT_ONCE)
        cos[part], sin[part] = _cos_sin(flat[part].astype(np.float64))
    return cos.reshape(angles.shape), sin.reshape(angles.shape)


def _cos_sin(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    turns = np.rint(x * _TWO_OVER_PI)  # quarter turns
    r = x
    for part in _PARTS:
        r = r - turns * part
    square = r * r
    cos, sin = _polynomial(_COS, square), r * _polynomial(_SIN, square)
    quarter = turns.astype(np.int64) & 3
    is_odd = (quarter & 1) == 1
    c, s = np.where(is_odd, sin, cos), np.where(is_odd, cos, sin)
    c = np.where((quarter == 1) | (quarter == 2), -c, c)
    return c, np.where(quarter >= 2, -s, s)


def _polynomial(
    coefficients: tuple[float, ...], square: NDArray[np.float64]
) -> NDArray[np.float64]:
    """By Horner's rule."""
    total = np.full_like(square, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * square + coefficient
    return total
