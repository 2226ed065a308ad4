"""A covering array: few rows of settings in which every two values of two factors meet.

Errors that need one setting or two at once are found by such rows (Cohen et al., "The AETG system",
IEEE Transactions on Software Engineering 23(7), 1997). Not here: what the settings mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from random import Random

Row = dict[str, object]
Pair = tuple[tuple[str, object], tuple[str, object]]


def covering_array(
    factors: Mapping[str, Sequence[object]],
    times: int = 1,
    is_wanted: Callable[[Row], bool] = lambda row: True,
) -> list[Row]:
    """Rows in which every pair of values of different factors occurs at least `times` times.

    Args:
        factors: the values of each.
        times: how often.
        is_wanted: False for rows, whole or in part, that should not occur, such as costly ones; it
            may forbid no pair.

    Greedy: each row starts from the pair that is missing most, and takes, one factor after the
    other, the value that meets most of what is still missing. The same rows every time.
    """
    missing = Counter({pair: times for pair in all_pairs(factors)})
    random = Random(0)
    rows: list[Row] = []
    while missing:
        row = _next_row(factors, missing, random, is_wanted)
        assert is_wanted(row), f"no other row was found than {row}"
        rows.append(row)
        for pair in pairs_of(row):
            missing[pair] -= 1
        missing = +missing
    return rows


def all_pairs(factors: Mapping[str, Sequence[object]]) -> list[Pair]:
    """Every two values of two factors, in the order of the factors."""
    return [
        ((a, x), (b, y))
        for a, b in combinations(factors, 2)
        for x, y in product(factors[a], factors[b])
    ]


def pairs_of(row: Row) -> list[Pair]:
    """The pairs that a row covers, in the order of its factors."""
    return list(combinations(row.items(), 2))


def _next_row(
    factors: Mapping[str, Sequence[object]],
    missing: Counter[Pair],
    random: Random,
    is_wanted: Callable[[Row], bool],
) -> Row:
    most = max(missing.values())
    row: Row = dict(next(pair for pair in missing if missing[pair] == most))
    for name, values in factors.items():
        if name not in row:
            mixed = random.sample(values, len(values))  # max takes the first of equals
            possible = [value for value in mixed if is_wanted({**row, name: value})] or mixed
            row[name] = max(possible, key=lambda value: _gain(factors, missing, row, (name, value)))
    return {name: row[name] for name in factors}


def _gain(
    factors: Mapping[str, Sequence[object]],
    missing: Counter[Pair],
    row: Row,
    entry: tuple[str, object],
) -> int:
    """How many missing pairs an entry makes with those that a row has already."""
    order = list(factors)
    pairs = (sorted((other, entry), key=lambda e: order.index(e[0])) for other in row.items())
    return sum(missing[first, second] > 0 for first, second in pairs)
