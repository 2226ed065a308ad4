from __future__ import annotations

import random
from itertools import pairwise

import pytest

from benchmarks.kv.trace import WEIGHTS, AnswerOf, Sizes, TraceMaker, Turn

WORDS = tuple(range(100, 200))
SIZES = Sizes(turns=300, system=60, role=10, message=(5, 30), answer=(2, 9), context=600)


def turns(seed: int = 0, sizes: Sizes = SIZES) -> list[Turn]:
    return list(TraceMaker(WORDS, sizes, seed, begin=(1,)).turns())


def answers(of: list[Turn]) -> list[list[int]]:
    drawn = random.Random(7)
    return [drawn.choices(WORDS, k=turn.num_answer_tokens) for turn in of]


def test_a_seed_makes_one_trace_and_another_seed_another() -> None:
    assert turns(3) == turns(3) != turns(4)


def test_a_shorter_trace_is_the_beginning_of_a_longer_one() -> None:
    assert turns(0, Sizes(**{**vars(SIZES), "turns": 20})) == turns()[:20]


def test_all_kinds_of_turns_come_and_all_agents_take_them() -> None:
    made = turns()
    assert {turn.kind for turn in made} == {*WEIGHTS, "start"}
    assert {turn.agent for turn in made} == {0, 1, 2}
    assert [turn.number for turn in made] == list(range(300))


def test_agents_share_the_system_prompt_and_nothing_beyond_it() -> None:
    given = answers(made := turns())
    first = {turn.agent: turn.prompt(given) for turn in reversed(made)}
    systems = {tuple(prompt[:60]) for prompt in first.values()}
    assert len(systems) == 1 and next(iter(systems))[0] == 1
    assert len({tuple(prompt[:70]) for prompt in first.values()}) == 3


def test_prompts_and_answers_fit_the_context() -> None:
    given = answers(made := turns())
    assert all(len(t.prompt(given)) + t.num_answer_tokens <= SIZES.context for t in made)
    assert sum(turn.kind == "start" for turn in made) > 3, "the context was full now and then"


@pytest.mark.parametrize("kind", ["continue", "regenerate"])
def test_what_goes_on_begins_with_all_that_was_there(kind: str) -> None:
    last: dict[int, Turn] = {}
    for turn in turns():
        if turn.kind == kind:
            before = last[turn.agent]
            whole = (*before.pieces, AnswerOf(before.number))
            expected = whole if kind == "continue" else before.pieces
            assert turn.pieces[: len(expected)] == expected
            assert len(turn.pieces) - len(expected) == (kind == "continue")
        last[turn.agent] = turn


def changed_place(before: Turn, after: Turn) -> int:
    pairs = zip(before.pieces, after.pieces, strict=False)
    return next(i for i, (one, other) in enumerate(pairs) if one != other)


def test_an_edit_leaves_what_came_after_it_and_a_revision_keeps_it() -> None:
    last: dict[int, Turn] = {}
    for turn in turns():
        if turn.kind in ("edit", "revise"):
            before = last[turn.agent]
            place = changed_place(before, turn)
            old, new = before.pieces[place], turn.pieces[place]
            assert isinstance(old, tuple) and isinstance(new, tuple) and old != new
            after = turn.pieces[place + 1 :]
            kept = (*before.pieces[place + 1 :], AnswerOf(before.number))
            assert after == (() if turn.kind == "edit" else (*kept, turn.pieces[-1]))
        last[turn.agent] = turn


def test_a_return_goes_on_where_an_earlier_conversation_of_the_agent_ended() -> None:
    made = turns()
    ends = {(t.agent, (*t.pieces, AnswerOf(t.number))) for t in made}
    returns = [turn for turn in made if turn.kind == "return"]
    assert returns and all((turn.agent, turn.pieces[:-1]) in ends for turn in returns)


def test_a_branch_follows_an_earlier_answer() -> None:
    for before, turn in pairwise(turns()):
        if turn.kind == "branch" and before.agent == turn.agent:
            assert isinstance(turn.pieces[-2], AnswerOf)
            assert (
                turn.pieces[:-1]
                == (*before.pieces, AnswerOf(before.number))[: len(turn.pieces) - 1]
            )
