"""How much a sequence may compute, who goes first, who yields blocks."""

from __future__ import annotations

from math import inf

from firstword.engine.policy import (
    LEAST_STRETCH,
    MOST_STRETCH,
    Budget,
    by_standing,
    preemption_reason,
    stretch,
)
from firstword.engine.request import Request, Sequence
from firstword.engine.step import StepTime
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from tests.fakes import full_group, state_group


def sequence_of(
    name: str, num_tokens: int = 1, *, priority: int = 0, key: str = "", arrival: float = 0.0
) -> Sequence:
    request = Request(
        name, (1,) * num_tokens, 100, priority=priority, key=key, arrival_time=arrival
    )
    return request.sequences[0]


def budget_of(
    num_tokens: int, *groups: KVGroup, ms: float = inf, step_time: StepTime | None = None
) -> Budget:
    manager = KVCacheManager(KVCacheSpec(groups or (full_group(),), 4), 8)
    return Budget(step_time or StepTime(), num_tokens, ms, manager)


def test_a_sequence_alone_gets_all() -> None:
    sequence = sequence_of("a", 100)
    assert budget_of(64).share_out([sequence]) == {sequence: 64}


def test_those_that_decode_are_taken_off_first() -> None:
    decoding = sequence_of("b", 30)
    decoding.num_computed_tokens = 29
    budget = budget_of(64, ms=10, step_time=StepTime(1, 2, 0, ms_per_sample=0.5))
    assert budget.serve_decodes([decoding]) == 2.5
    assert (budget.num_tokens, budget.ms) == (63, 7.5)


def test_alike_ones_are_served_one_after_the_other() -> None:
    sequences = [sequence_of(name, 100, arrival=i) for i, name in enumerate("abc")]
    assert list(budget_of(67).share_out(sequences).values()) == [65, 1, 1]


def test_half_is_left_for_a_much_shorter_one_behind() -> None:
    long, short = sequence_of("a", 100), sequence_of("b", 40)
    assert budget_of(64).share_out([long, short]) == {long: 31, short: 33}
    budget = budget_of(64)
    budget.shortest_waiting = 10
    assert budget.share_out([long]) == {long: 32}
    budget = budget_of(64)
    budget.shortest_waiting = 50
    assert budget.share_out([long]) == {long: 64}


def test_what_one_does_not_need_goes_to_the_next() -> None:
    short, long = sequence_of("a", 3), sequence_of("b", 100, arrival=1)
    assert budget_of(64).share_out([short, long]) == {short: 3, long: 61}


def test_half_is_no_smaller_than_a_block() -> None:
    first, second = sequence_of("a", 100), sequence_of("b", 10, arrival=1)
    assert budget_of(6).share_out([first, second]) == {first: 4, second: 2}


def test_everybody_gets_a_token_however_small_the_budget() -> None:
    sequences = [sequence_of(str(i), 100, arrival=i) for i in range(8)]
    sizes = budget_of(8, ms=-5, step_time=StepTime(ms_per_token=1)).share_out(sequences)
    assert set(sizes.values()) == {1}


def test_time_limits_a_chunk() -> None:
    cost = StepTime(ms_per_token=1)
    sequence = sequence_of("a", 100)
    assert budget_of(64, ms=10, step_time=cost).share_out([sequence]) == {sequence: 10}


def test_a_key_that_is_owed_may_take_more_time() -> None:
    owed, other = sequence_of("a", 100, key="owed"), sequence_of("b", 100, key="other")
    budget = budget_of(64, ms=10, step_time=StepTime(ms_per_token=1))
    budget.owed_key, budget.owed_ms = "owed", 30
    assert budget.share_out([owed, other]) == {owed: 30, other: 1}


def test_what_is_given_back_can_be_spent_again() -> None:
    budget = budget_of(64, ms=10, step_time=StepTime(ms_per_token=1))
    budget.spend(8, 5)
    assert (budget.num_tokens, budget.ms) == (56, 2)
    budget.give_back(8, 5)
    assert (budget.num_tokens, budget.ms) == (64, 10)


def test_a_chunk_ends_at_a_checkpoint() -> None:
    budget = budget_of(64, full_group(0), state_group(1, 8))
    sequence = sequence_of("a", 100)
    assert budget.chunk(sequence, 3, num_behind=0, shortest=inf) == 5


def test_a_step_is_stretched_by_those_who_wait_within_bounds() -> None:
    assert stretch(8, 1) == LEAST_STRETCH
    assert stretch(4, 5) == 1 + 5 / 4 * (LEAST_STRETCH - 1)
    assert stretch(1, 100) == MOST_STRETCH


def test_the_lowest_priority_yields_first() -> None:
    low, high = sequence_of("a", priority=0), sequence_of("b", priority=1, arrival=9)
    high.num_computed_tokens = 50
    assert by_standing([low, high], [low, high]) == [high, low]
    assert preemption_reason([low, high], low, [high]) == "lowest priority"


def test_then_the_key_that_holds_most() -> None:
    greedy = [sequence_of(f"a{i}", 50, key="greedy", arrival=i) for i in range(2)]
    modest = sequence_of("b", 50, key="modest", arrival=5)
    for sequence, num_tokens in zip([*greedy, modest], (10, 15, 20), strict=True):
        sequence.num_computed_tokens = num_tokens
    running = [*greedy, modest]
    assert by_standing(running, running) == [modest, *greedy]
    assert preemption_reason(running, greedy[1], [modest]) == "its key holds most"


def test_then_the_youngest() -> None:
    old, young = sequence_of("a", arrival=1), sequence_of("b", arrival=2)
    assert by_standing([old, young], [young, old]) == [old, young]
    assert preemption_reason([old, young], young, [old]) == "youngest"


def test_a_protected_one_yields_only_to_protected_ones() -> None:
    first, second, third = (sequence_of(n, arrival=i) for i, n in enumerate("abc"))
    third.preempt()
    third.preempt()
    running = [first, second, third]
    assert by_standing(running, running) == [third, first, second]
    assert preemption_reason(running, second, [third]) == "the others are protected"
    second.preempt()
    second.preempt()
    assert by_standing(running, running) == [second, third, first]


def test_what_a_key_holds_does_not_matter_among_protected_ones() -> None:
    first, second = sequence_of("a", 50, key="x"), sequence_of("b", 50, key="y", arrival=1)
    for sequence in (first, second):
        sequence.preempt()
        sequence.preempt()
    first.num_computed_tokens = 40
    assert by_standing([first, second], [second, first]) == [first, second]


def test_nobody_else_to_take_from() -> None:
    sequence = sequence_of("a")
    assert preemption_reason([sequence], sequence, []) == "nobody else runs"
