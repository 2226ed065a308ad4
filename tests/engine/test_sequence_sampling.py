from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from firstword.engine.request import Request, Sequence
from firstword.engine.sequence_sampling import SequenceSampling
from firstword.errors import SamplingError
from firstword.sampling.params import SamplingParams

PARAMS = SamplingParams(seed=1)


def sequence(min_tokens: int = 0) -> Sequence:
    return Request(
        "a",
        (0, 1, 2, 3, 4),
        max_tokens=8,
        min_tokens=min_tokens,
        stop_token_ids=frozenset({3, 2}),
    ).sequences[0]


@dataclass
class Counting:
    """Allows the token that is as large as the number accepted; after `end` of them only 2."""

    end: int = 3
    accepted: list[int] = field(default_factory=list)

    def mask(self) -> NDArray[np.uint32]:
        allowed = len(self.accepted) + 4 if len(self.accepted) < self.end else 2
        return np.array([1 << allowed, 0], np.uint32)

    def accept(self, token_id: int) -> None:
        if token_id == 63:
            raise SamplingError("too complex")
        self.accepted.append(token_id)

    @property
    def is_done(self) -> bool:
        return len(self.accepted) > self.end

    def fork(self) -> Counting:
        return Counting(self.end, list(self.accepted))


def test_a_row_carries_the_strategy() -> None:
    params = SamplingParams(
        temperature=0.5, top_k=7, top_p=0.25, seed=2**64 - 1, logit_bias={9: -1, 4: 2}, logprobs=3
    )
    row = SequenceSampling(sequence(), params).row()
    assert (row.temperature, row.top_k, row.top_p) == (0.5, 7, 0.25)
    assert (row.seed, row.position, row.sample_index) == (2**64 - 1, 5, 0)
    assert row.logit_bias == ((4, 2.0), (9, -1.0))
    assert row.banned_token_ids == ()
    assert row.num_top_logprobs == 3
    assert SequenceSampling(sequence(), params).row(5).num_top_logprobs == 5
    assert (row.penalties, row.allowed_tokens) == (None, None)


def test_end_tokens_are_banned_until_min_tokens() -> None:
    owner = sequence(min_tokens=2)
    sampling, banned = SequenceSampling(owner, PARAMS), []
    for _ in range(4):
        banned.append(sampling.row().banned_token_ids)
        owner.token_ids.append(9)
    assert banned == [(2, 3), (2, 3), (), ()]


def test_penalties_follow_the_sequence() -> None:
    owner = sequence()
    sampling = SequenceSampling(owner, SamplingParams(seed=1, presence_penalty=1))
    assert sampling.row().penalties is None
    owner.token_ids += [9, 4, 9]
    for _ in range(2):  # a step taken back asks again
        table = sampling.row().penalties
        assert table is not None
        assert dict(zip(table.token_ids, table.counts, strict=True)) == {9: 2, 4: 1}


def test_a_grammar_follows_the_sequence_however_often_it_is_asked() -> None:
    owner, grammar = sequence(), Counting()
    sampling = SequenceSampling(owner, PARAMS, grammar)
    assert not sampling.advance()
    for token in (4, 5, 6):
        for _ in range(2):  # a step taken back asks again
            allowed = sampling.row().allowed_tokens
            assert allowed is not None and allowed[0] == 1 << token
        owner.token_ids.append(token)
        assert not sampling.advance()
    assert grammar.accepted == [4, 5, 6]
    owner.token_ids.append(2)
    assert sampling.advance()
    assert sampling.advance()


def test_min_tokens_gives_way_where_the_grammar_is_at_its_end() -> None:
    owner = sequence(min_tokens=5)
    sampling = SequenceSampling(owner, PARAMS, Counting(end=1))
    assert sampling.row().banned_token_ids == (2, 3)
    owner.token_ids.append(4)
    row = sampling.row()
    assert row.banned_token_ids == ()
    assert row.allowed_tokens is not None and row.allowed_tokens.tolist() == [1 << 2, 0]


def test_a_grammar_that_cannot_go_on_leaves_nothing_and_says_why() -> None:
    owner = sequence()
    sampling = SequenceSampling(owner, PARAMS, Counting())
    owner.token_ids.append(63)
    assert not sampling.advance()
    assert str(sampling.error) == "too complex"
    allowed = sampling.row().allowed_tokens
    assert allowed is not None and not allowed.any()
    assert not sampling.advance()


def test_an_error_seen_first_by_the_row_is_kept() -> None:
    owner = sequence()
    sampling = SequenceSampling(owner, PARAMS, Counting())
    owner.token_ids.append(63)
    assert sampling.row().allowed_tokens is not None
    assert isinstance(sampling.error, SamplingError)


def test_an_unresolved_seed_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        SequenceSampling(sequence(), SamplingParams()).row()
