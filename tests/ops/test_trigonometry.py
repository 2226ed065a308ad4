from __future__ import annotations

import hashlib
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from firstword.batch import Float32Array
from firstword.layers.rope import rope_spec
from firstword.ops.trigonometry import MAX_ANGLE, cos_sin

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def exact_cos_sin(angle: float) -> tuple[Decimal, Decimal]:
    """By the Taylor series of the reduced angle, to 50 digits."""
    with localcontext() as context:
        context.prec = 80
        x = Decimal(angle) % (2 * PI)
        sums, term = [Decimal(0), Decimal(0)], Decimal(1)
        for n in range(120):
            sums[n % 2] += term if n % 4 < 2 else -term
            term *= x / (n + 1)
        return sums[0], sums[1]


def rope_angles(num_positions: int) -> Float32Array:
    inv_freq = np.array(rope_spec(64, 10000.0).inv_freq, dtype=np.float32)
    angles: Float32Array = np.arange(num_positions, dtype=np.float32)[:, None] * inv_freq
    return angles


def test_against_fifty_digits() -> None:
    """Angles of every size, and those that come closest to multiples of pi / 2."""
    rng = np.random.default_rng(1)
    near = np.arange(1, 200_000, 997, dtype=np.float64) * (math.pi / 2)
    angles = np.concatenate(
        [near, 10.0 ** rng.uniform(-6, math.log10(MAX_ANGLE), 200), [0.0, 1e-30, 16367173.0]]
    ).astype(np.float32)
    for found, exact in zip(
        zip(*cos_sin(angles), strict=True), map(exact_cos_sin, angles.tolist()), strict=True
    ):
        for value, decimal in zip(found, exact, strict=True):
            ulp = Decimal(float(np.spacing(np.abs(value))))
            assert abs(Decimal(float(value)) - decimal) <= Decimal("0.51") * ulp


def test_of_a_long_context_against_the_c_library() -> None:
    angles = rope_angles(131_072)[::37]
    wide = angles.astype(np.float64)
    for found, function in zip(cos_sin(angles), (np.cos, np.sin), strict=True):
        assert np.abs(found - function(wide)).max() <= 2.0**-24


def test_negative_angles_and_zero() -> None:
    angles = rope_angles(300)
    cos, sin = cos_sin(angles)
    back_cos, back_sin = cos_sin(-angles)
    assert (cos == back_cos).all() and (sin == -back_sin).all()
    assert cos[0].tolist() == [1.0] * 32 and sin[0].tolist() == [0.0] * 32


def test_an_angle_does_not_depend_on_those_beside_it() -> None:
    angles = rope_angles(2000)
    cos, sin = cos_sin(angles)
    few_cos, few_sin = cos_sin(angles[1234:1235, 3:10])
    assert (few_cos == cos[1234:1235, 3:10]).all() and (few_sin == sin[1234:1235, 3:10]).all()


def test_the_bits_are_those_recorded() -> None:
    """Of the first 4,096 positions of a usual model; equal on every processor."""
    digest = hashlib.sha256()
    for part in cos_sin(rope_angles(4096)):
        digest.update(part.astype("<f4").tobytes())
    assert digest.hexdigest() == "1659c515d59df265fa7e4e101ac588e19384a0b28c320e6e6b1d8918dd984518"


def test_angles_beyond_the_reduction_are_our_bug() -> None:
    with pytest.raises(AssertionError, match="too large"):
        cos_sin(np.array([MAX_ANGLE], dtype=np.float32))
