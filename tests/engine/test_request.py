"""Requests and sequences: counts, ends, and what is refused."""

from __future__ import annotations

import pytest

from firstword.engine.request import PROTECTED_TOKENS, Request, Sequence, SequenceStatus
from firstword.errors import ConfigError


def sequence_of(max_tokens: int = 10, min_tokens: int = 0) -> Sequence:
    stops = frozenset({9})
    request = Request("r", (1, 2, 3), max_tokens, min_tokens=min_tokens, stop_token_ids=stops)
    return request.sequences[0]


def test_counts() -> None:
    sequence = sequence_of()
    assert (sequence.num_tokens, sequence.num_pending_tokens) == (3, 3)
    sequence.num_computed_tokens = 3
    sequence.token_ids.append(7)
    assert (sequence.num_prompt_tokens, sequence.num_output_tokens) == (3, 1)
    assert sequence.output_token_ids == [7]
    assert sequence.num_pending_tokens == 1


def test_all_sequences_but_the_first_await_a_fork() -> None:
    request = Request("r", (1,), 1, n=3)
    assert [s.index for s in request.unforked] == [1, 2]
    request.sequences[1].finish("abort", None)
    assert [s.index for s in request.unforked] == [2]
    assert not request.is_finished
    for sequence in request.sequences:
        sequence.finish("length", None)
    assert request.is_finished


def test_a_stop_token_ends_it() -> None:
    sequence = sequence_of()
    sequence.token_ids.append(8)
    assert sequence.reason_to_stop(100) is None
    sequence.token_ids.append(9)
    assert sequence.reason_to_stop(100) == "stop"


def test_min_tokens_must_come_before_a_stop_token() -> None:
    sequence = sequence_of(min_tokens=2)
    sequence.token_ids += [9, 9]
    assert sequence.reason_to_stop(100) is None
    sequence.token_ids.append(9)
    assert sequence.reason_to_stop(100) == "stop"


def test_max_tokens_and_the_context_end_it() -> None:
    sequence = sequence_of(max_tokens=2)
    sequence.token_ids += [8]
    assert sequence.reason_to_stop(100) is None
    assert sequence.reason_to_stop(4) == "length"
    sequence.token_ids += [8]
    assert sequence.reason_to_stop(100) == "length"


def test_stop_wins_over_length() -> None:
    sequence = sequence_of(max_tokens=1)
    sequence.token_ids += [9]
    assert sequence.reason_to_stop(4) == "stop"


def test_preempted_twice_it_is_protected_for_a_while() -> None:
    sequence = sequence_of()
    sequence.num_computed_tokens = 3
    sequence.preempt()
    assert sequence.status is SequenceStatus.PREEMPTED
    assert sequence.num_computed_tokens == 0
    assert not sequence.is_protected
    sequence.preempt()
    assert sequence.is_protected
    sequence.token_ids += [8] * (PROTECTED_TOKENS - 1)
    assert sequence.is_protected
    sequence.token_ids += [8]
    assert not sequence.is_protected


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "n", "message"),
    [((), 1, 1, "no prompt"), ((1,), 0, 1, "max_tokens is 0"), ((1,), 1, 0, "n is 0")],
)
def test_what_cannot_be_answered_is_refused(
    prompt: tuple[int, ...], max_tokens: int, n: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Request("r", prompt, max_tokens, n=n)
