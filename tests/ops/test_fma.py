from fractions import Fraction
from itertools import product

import numpy as np

from firstword.batch import Float32Array
from firstword.ops.fma import fma32

MAX = Fraction(float(np.finfo(np.float32).max))


def nearest(exact: Fraction) -> np.float32:
    """An exact number, rounded half to even to a float32, by hand."""
    if exact == 0:
        return np.float32(0)
    bits = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent = max(-149, bits - 25)
    while abs(exact) / Fraction(2) ** exponent >= 2**24:
        exponent += 1
    rounded = round(exact / Fraction(2) ** exponent) * Fraction(2) ** exponent  # half to even
    if abs(rounded) > MAX:
        return np.float32(np.inf if exact > 0 else -np.inf)
    return np.float32(float(rounded))


def check(a: Float32Array, b: Float32Array, c: Float32Array) -> None:
    results = fma32(a, b, c)
    assert results.dtype == np.float32
    for x, y, z, result in zip(a, b, c, results, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert result == nearest(exact), (x, y, z, result)


def random_floats(seed: int, count: int, low: int, high: int) -> Float32Array:
    """Random significands, exponents between two powers of two."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(low, high, count)
    return np.ldexp(rng.uniform(-1, 1, count), exponents).astype(np.float32)


def test_ordinary_numbers() -> None:
    check(*(random_floats(seed, 2000, -8, 8) for seed in range(3)))


def test_all_exponents() -> None:
    a, b = random_floats(3, 1000, -74, 62), random_floats(4, 1000, -74, 62)
    check(a, b, random_floats(5, 1000, -148, 126))


def test_subnormal_results() -> None:
    a, b = random_floats(6, 1000, -75, -60), random_floats(7, 1000, -75, -60)
    check(a, b, random_floats(8, 1000, -149, -125))


def test_where_rounding_twice_goes_wrong() -> None:
    """Sums that float64 rounds to a midpoint of two float32: naive rounding errs on half."""
    values = np.array([1, 1 + 2**-23, 1 - 2**-24, 1 + 2**-12, 3, 2**-30, -(2**-30), 2**-54])
    triples = np.array(list(product(values, values, np.concatenate([values, -values]))))
    halfway = np.array(
        [
            (1 + 2**-23, 2**-24, 1),
            (2**-24, 1 + 2**-23, 1 + 2**-23),
            (-(2**-24), 1 + 2**-23, 1),
            (2**-24 + 2**-47, 1, 1),
            (2**-24 - 2**-48, 1, 1),
            (2**-40, 2**-40, 1 + 2**-23),
            (-(2**-40), 2**-40, 1),
            (1 + 2**-12, 1 + 2**-12, -1),
        ]
    )
    a, b, c = np.concatenate([triples, halfway]).astype(np.float32).T
    check(a, b, c)
    check(-a, b, -c)
    with np.errstate(all="ignore"):
        naive = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (naive != fma32(a, b, c)).any(), "the inputs do not tell the two apart"


def test_cancellation_is_exact() -> None:
    a = random_floats(9, 500, -8, 8)
    b = random_floats(10, 500, -8, 8)
    check(a, b, -(a * b))


def test_overflow_and_special_values() -> None:
    big, inf, nan = np.float32(3e38), np.float32(np.inf), np.float32(np.nan)
    assert fma32(big, big, np.float32(0)) == np.inf
    assert fma32(-big, big, np.float32(1)) == -np.inf
    assert fma32(big, np.float32(2), -big) == big
    assert fma32(inf, np.float32(1), big) == np.inf
    for a, b, c in [(inf, np.float32(0), big), (inf, inf, -inf), (nan, big, big), (big, big, nan)]:
        assert np.isnan(fma32(a, b, c))


def test_sign_of_zero() -> None:
    zero = np.float32(0)
    assert not np.signbit(fma32(zero, zero, -zero))
    assert np.signbit(fma32(-zero, zero, -zero))
    assert not np.signbit(fma32(np.float32(2), np.float32(3), np.float32(-6)))


def test_arguments_broadcast() -> None:
    rows = np.arange(3, dtype=np.float32)[:, None]
    columns = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(fma32(rows, columns, np.float32(1)), rows * columns + 1)
