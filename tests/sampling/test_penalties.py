from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword.batch import PenaltyTable
from firstword.sampling.params import SamplingParams
from firstword.sampling.penalties import TokenCounts

PARAMS = SamplingParams(repetition_penalty=1.2, frequency_penalty=0.5, presence_penalty=0.25)
ALL = SamplingParams(presence_penalty=1, penalty_scope="all")


def counts_of(table: PenaltyTable | None) -> dict[int, int]:
    if table is None:
        return {}
    assert table.token_ids.dtype == table.counts.dtype == np.int32
    return dict(zip(table.token_ids.tolist(), table.counts.tolist(), strict=True))


def test_a_table_carries_the_penalties() -> None:
    table = TokenCounts(PARAMS, 1).table([3, 5])
    assert table is not None
    assert (table.repetition, table.frequency, table.presence) == (1.2, 0.5, 0.25)


def test_p22_the_scope_says_whether_the_prompt_counts() -> None:
    tokens = [7, 7, 8, 9, 7]
    assert counts_of(TokenCounts(PARAMS, 3).table(tokens)) == {9: 1, 7: 1}
    assert counts_of(TokenCounts(ALL, 3).table(tokens)) == {7: 3, 8: 1, 9: 1}


def test_there_is_no_table_before_anything_has_occurred() -> None:
    assert TokenCounts(PARAMS, 2).table([1, 2]) is None


def test_tables_grow_with_the_vocabulary_in_use() -> None:
    counts = TokenCounts(ALL, 0)
    early = counts.table(range(50))
    tokens = [*range(50), *range(0, 500, 2)]
    assert counts_of(counts.table(tokens)) == Counter(tokens)
    assert counts_of(early) == Counter(range(50))


def test_being_asked_again_counts_nothing_twice() -> None:
    counts = TokenCounts(PARAMS, 1)
    assert counts_of(counts.table([1, 4])) == {4: 1}
    assert counts_of(counts.table([1, 4])) == {4: 1}


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(st.lists(st.integers(0, 300), max_size=150), max_size=6))
def test_tables_are_those_of_counting_anew_and_stay_as_they_were(pieces: list[list[int]]) -> None:
    counts, tokens = TokenCounts(ALL, 0), list[int]()
    given_out: list[tuple[PenaltyTable | None, Counter[int]]] = []
    for piece in pieces:
        tokens += piece
        given_out.append((counts.table(tokens), Counter(tokens)))
    for table, expected in given_out:
        assert counts_of(table) == expected
