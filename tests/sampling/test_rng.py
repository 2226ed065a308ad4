from __future__ import annotations

import pytest

from firstword.errors import ConfigError
from firstword.sampling.rng import MAX_SEED, Words4, philox4x32, uniform

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        # The known answers that Random123, the authors' own code, is tested with.
        (
            (0, 0, 0, 0),
            (0, 0),
            (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ),
        (
            (ONES, ONES, ONES, ONES),
            (ONES, ONES),
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (  # digits of pi
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(
    counter: Words4, key: tuple[int, int], expected: Words4
) -> None:
    assert philox4x32(counter, key) == expected


def test_uniform_takes_the_upper_24_bits_of_the_first_word() -> None:
    assert uniform(0, 0, 0) == (0x6627E8D5 >> 8) / 2**24
    counter, key = (7, 3, 2, 0), (0x89ABCDEF, 0x01234567)
    assert uniform(0x0123456789ABCDEF, 7, 3, 2) == (philox4x32(counter, key)[0] >> 8) / 2**24


def test_every_argument_matters() -> None:
    numbers = {
        uniform(seed, position, sample, draw)
        for seed in (0, 1, 2**32 - 1, 2**32, MAX_SEED)
        for position in (0, 1, ONES)
        for sample in (0, 1)
        for draw in (0, 1)
    }
    assert len(numbers) == 5 * 3 * 2 * 2
    assert all(0 <= number < 1 for number in numbers)


def test_uniform_fills_its_range_evenly() -> None:
    counts = [0] * 16
    for position in range(8000):
        counts[int(uniform(42, position, 0) * 16)] += 1
    chi_square = sum((count - 500) ** 2 / 500 for count in counts)
    assert chi_square < 37.7  # 0.1% of fair generators exceed it (15 degrees of freedom)


@pytest.mark.parametrize(
    "arguments",
    [(-1, 0, 0), (MAX_SEED + 1, 0, 0), (0, -1, 0), (0, 2**32, 0), (0, 0, -1), (0, 0, 0, 2**32)],
)
def test_arguments_out_of_range_are_refused(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"must be a whole number from 0 to 2\*\*"):
        uniform(*arguments)
