"""Random numbers that depend on nothing but seed, position and sample: Philox4x32-10.

A counter-based generator has no state to carry, so a token's number is the same whatever else
runs beside it. Not here: how a number picks a token (sampler).
"""

from __future__ import annotations

from firstword.errors import ConfigError

MAX_SEED = 2**64 - 1
"""Largest seed: the key of the generator has 64 bits."""

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

Words4 = tuple[int, int, int, int]


def philox4x32(counter: Words4, key: tuple[int, int]) -> Words4:
    """Philox4x32-10: 128 random bits out of a 128-bit counter and a 64-bit key.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.

    Args:
        counter: four 32-bit words.
        key: two 32-bit words.

    Returns:
        Four 32-bit words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        left, right = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (right >> 32) ^ c1 ^ k0,
            right & _WORD,
            (left >> 32) ^ c3 ^ k1,
            left & _WORD,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int, sample_index: int, draw: int = 0) -> float:
    """The random number of one token.

    Args:
        seed: 0 .. 2**64 - 1.
        position: position of the token in its sequence, 0 .. 2**32 - 1.
        sample_index: which of a request's samples, 0 .. 2**32 - 1.
        draw: which of several numbers for the same token, 0 .. 2**32 - 1.

    Returns:
        A multiple of 2**-24 in [0, 1), exact in single precision.

    Raises:
        ConfigError: an argument is outside its range.
    """
    if not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed is {seed}: it must be a whole number from 0 to 2**64 - 1")
    for name, word in (("position", position), ("sample_index", sample_index), ("draw", draw)):
        if not 0 <= word <= _WORD:
            raise ConfigError(f"{name} is {word}: it must be a whole number from 0 to 2**32 - 1")
    bits = philox4x32((position, sample_index, draw, 0), (seed & _WORD, seed >> 32))[0]
    return (bits >> 8) * 2.0**-24
