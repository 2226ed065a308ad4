"""Steps: budgets, admission, sharing, forks, preemption, and the ends of sequences."""

from __future__ import annotations

import pytest

from firstword.engine.request import Request
from firstword.engine.step import SchedulerOutput, StepTime
from firstword.errors import CapacityError, ConfigError, PromptTooLongError
from tests.fakes import Driver, full_group, sliding_group, state_group

GROUPS = {
    "full": (full_group(0),),
    "sliding": (full_group(0), sliding_group(1, 6), sliding_group(2, 6)),
    "state": (full_group(0), state_group(1, 8)),
}


def prompt(num_tokens: int, first: int = 100) -> tuple[int, ...]:
    return tuple(range(first, first + num_tokens))


def sizes(output: SchedulerOutput) -> dict[str, int]:
    """Positions per request of a step."""
    return {item.sequence.request.request_id: item.num_tokens for item in output.scheduled}


# -- One request --------------------------------------------------------------------------------


def test_a_prompt_is_computed_and_continued() -> None:
    driver = Driver(max_num_batched_tokens=8)
    request = Request("a", prompt(10), 3)
    driver.run(request)
    driver.check_outputs(request)
    assert [output.num_tokens for output in driver.outputs] == [8, 2, 1, 1]
    assert [output.scheduled[0].samples for output in driver.outputs] == [(), (0,), (0,), (0,)]
    assert [output.step for output in driver.outputs] == [1, 2, 3, 4]
    assert driver.manager.num_free_blocks == driver.num_blocks


@pytest.mark.parametrize("cached", [True, False])
def test_positions_with_and_without_the_cache(cached: bool) -> None:
    """p = 1 and 1,000 positions fed: 1,000 computations, or the sum of 1 .. 1,000."""
    driver = Driver(num_blocks=300, max_model_len=2000, enable_kv_cache=cached)
    driver.run(Request("a", (7,), 1000))
    assert driver.runner.num_positions == (1_000 if cached else 500_500)


def test_without_the_cache_every_step_computes_every_position() -> None:
    driver = Driver(enable_kv_cache=False, max_num_batched_tokens=4)
    requests = [Request("a", prompt(9), 3), Request("b", prompt(3), 3, n=2)]
    driver.run(*requests)
    driver.check_outputs(*requests)
    for output in driver.outputs:
        assert all(item.start == 0 for item in output.scheduled)
        assert output.num_tokens <= 4 or len(output.scheduled) == 1
    assert driver.runner.num_positions == 9 + 10 + 11 + 3 + 2 * (4 + 5)


def test_updates_tell_tokens_and_ends() -> None:
    driver = Driver()
    request = Request("a", prompt(3), 2)
    driver.scheduler.add(request)
    (first,) = driver.update(driver.schedule())
    (second,) = driver.update(driver.schedule())
    sequence = request.sequences[0]
    assert [first.token_id, second.token_id] == sequence.output_token_ids
    assert (first.finished, second.finished) == (False, True)
    assert (sequence.finish_reason, sequence.stop_reason) == ("length", None)
    assert not driver.scheduler.has_work
    assert driver.scheduler.schedule() is None


def test_a_stop_token_is_named_as_the_reason() -> None:
    driver = Driver()
    request = Request("a", prompt(3), 50, stop_token_ids=frozenset(range(5)), min_tokens=3)
    driver.run(request)
    sequence = request.sequences[0]
    assert sequence.num_output_tokens == 4
    assert sequence.finish_reason == "stop"
    assert sequence.stop_reason == sequence.token_ids[-1]


def test_a_full_context_ends_it() -> None:
    driver = Driver(max_model_len=12)
    request = Request("a", prompt(8), 50)
    driver.run(request)
    assert request.sequences[0].num_tokens == 12
    assert request.sequences[0].finish_reason == "length"


def test_outputs_carry_the_time_and_the_prediction() -> None:
    driver = Driver(step_time=StepTime(5, 1, 0.5))
    driver.clock.advance(3.5)
    driver.scheduler.add(Request("a", prompt(4), 5))
    output = driver.step()
    assert output.time == 3.5
    assert output.predicted_ms == 5 + 4 + 0.5 * (1 + 2 + 3 + 4)
    assert driver.step().predicted_ms == 5 + 1 + 0.5 * 5


# -- What is refused ----------------------------------------------------------------------------


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(PromptTooLongError, match=r"64 tokens, but the context holds 64"):
        Driver().scheduler.add(Request("a", prompt(64), 1))


def test_what_can_never_fit_the_pool_is_refused() -> None:
    driver = Driver(num_blocks=4)
    with pytest.raises(CapacityError, match=r"17 tokens needs 5 KV blocks, but the pool has 4"):
        driver.scheduler.add(Request("a", prompt(10), 7))
    driver.run(Request("a", prompt(10), 6))


def test_an_id_in_use_is_refused() -> None:
    driver = Driver()
    driver.scheduler.add(Request("a", prompt(3), 1))
    with pytest.raises(ConfigError, match="'a' is in use"):
        driver.scheduler.add(Request("a", prompt(3), 1))
    driver.run()
    driver.run(Request("a", prompt(3), 1))


def test_a_step_must_end_before_the_next_begins() -> None:
    driver = Driver()
    driver.scheduler.add(Request("a", prompt(3), 1))
    output = driver.schedule()
    with pytest.raises(AssertionError, match="not been updated"):
        driver.scheduler.schedule()
    driver.update(output)
    with pytest.raises(AssertionError, match="step under way"):
        driver.scheduler.update(output, {})


# -- Many requests ------------------------------------------------------------------------------


def test_a_decode_never_waits_for_a_prefill() -> None:
    driver = Driver(max_num_batched_tokens=8)
    driver.scheduler.add(Request("a", prompt(4), 20))
    driver.step()
    driver.scheduler.add(Request("b", prompt(30, 200), 2))
    assert [sizes(driver.step()) for _ in range(3)] == [{"a": 1, "b": 7}] * 3


def test_a_long_prompt_does_not_starve_a_short_one() -> None:
    driver = Driver(max_num_batched_tokens=16)
    driver.scheduler.add(Request("long", prompt(50), 2))
    driver.scheduler.add(Request("short", prompt(6, 200), 2))
    assert sizes(driver.step()) == {"long": 8, "short": 6}


def test_priority_then_arrival_decide_who_starts() -> None:
    driver = Driver(max_num_seqs=1)
    requests = [
        Request("late", prompt(2), 1, arrival_time=2),
        Request("early", prompt(2, 200), 1, arrival_time=1),
        Request("urgent", prompt(2, 300), 1, arrival_time=3, priority=1),
    ]
    driver.run(*requests)
    order = [item.sequence.request.request_id for o in driver.outputs for item in o.scheduled]
    assert order == ["urgent", "early", "late"]


def test_seats_and_tokens_are_never_exceeded() -> None:
    driver = Driver(max_num_seqs=3, max_num_batched_tokens=5)
    requests = [Request(str(i), prompt(7, 100 * i), 4, n=2) for i in range(5)]
    driver.run(*requests)
    driver.check_outputs(*requests)
    assert max(len(output.scheduled) for output in driver.outputs) == 3
    assert max(output.num_tokens for output in driver.outputs) == 5


def test_every_running_sequence_moves_in_every_step() -> None:
    driver = Driver(max_num_seqs=8, max_num_batched_tokens=3)
    for i in range(6):
        driver.scheduler.add(Request(str(i), prompt(3, 100 * i), 9))
    while driver.scheduler.has_work:
        driver.schedule()
        assert len(driver.outputs[-1].scheduled) == driver.scheduler.num_running <= 3
        driver.update(driver.outputs[-1])


def test_time_limits_chunks_but_never_stops_progress() -> None:
    driver = Driver(step_time=StepTime(ms_per_step=2, ms_per_token=1), step_time_budget_ms=8)
    driver.scheduler.add(Request("a", prompt(20), 3))
    assert driver.step().num_tokens == 6
    driver = Driver(step_time=StepTime(ms_per_step=2, ms_per_token=1), step_time_budget_ms=1)
    request = Request("a", prompt(20), 3)
    driver.run(request)
    assert {output.num_tokens for output in driver.outputs} == {1}


def test_time_that_decodes_take_is_not_given_to_prompts() -> None:
    driver = Driver(step_time=StepTime(ms_per_token=1), step_time_budget_ms=4)
    driver.scheduler.add(Request("a", prompt(2), 9))
    driver.step()
    driver.scheduler.add(Request("b", prompt(10, 200), 2))
    assert sizes(driver.step()) == {"a": 1, "b": 3}


# -- Prefix cache -------------------------------------------------------------------------------


def test_the_next_turn_reuses_everything_but_the_last_token() -> None:
    driver = Driver()
    first = Request("a", prompt(9), 4)
    driver.run(first)
    history = tuple(first.sequences[0].token_ids)
    second = Request("b", (*history, 50, 51, 52), 2)
    driver.scheduler.add(second)
    output = driver.step()
    ((sequence, hit),) = output.prefix_hits
    assert sequence is second.sequences[0]
    assert sequence.num_cached_tokens == hit.num_tokens == len(history) - 1
    assert sizes(output) == {"b": 4}


def test_the_same_prompt_again_computes_one_token() -> None:
    driver = Driver()
    driver.run(Request("a", prompt(12), 1))
    again = Request("b", prompt(12), 1)
    driver.run(again)
    assert driver.outputs[-1].num_tokens == 1
    assert again.sequences[0].num_cached_tokens == 11
    driver.check_outputs(again)


def test_another_salt_shares_nothing() -> None:
    driver = Driver()
    driver.run(Request("a", prompt(12), 1, salt="x"))
    driver.run(Request("b", prompt(12), 1, salt="y"))
    assert driver.outputs[-1].num_tokens == 12


def test_without_prefix_caching_everything_is_computed() -> None:
    driver = Driver(enable_prefix_caching=False)
    requests = [Request("a", prompt(12), 3), Request("b", prompt(12), 3, n=2)]
    for request in requests:
        driver.run(request)
    driver.check_outputs(*requests)
    assert driver.runner.num_positions == 12 + 2 + 12 + 2 * 2


def test_chunks_end_at_checkpoints_and_a_state_is_reused() -> None:
    driver = Driver(GROUPS["state"], max_num_batched_tokens=16)
    driver.run(Request("a", prompt(20), 2))
    assert [output.num_tokens for output in driver.outputs] == [8, 8, 4, 1]
    again = Request("b", (*prompt(18), 7, 7), 2)
    driver.run(again)
    assert again.sequences[0].num_cached_tokens == 16
    driver.check_outputs(again)


def test_a_hit_that_a_tight_pool_cannot_copy_is_given_up() -> None:
    driver = Driver(num_blocks=4)
    driver.run(Request("a", prompt(15), 1))
    request = Request("b", (*prompt(14), 7), 1)  # 3 shared blocks, a source and its copy: 5
    driver.run(request)
    driver.check_outputs(request)
    assert request.sequences[0].num_cached_tokens == 0


# -- Several samples ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GROUPS)
def test_samples_share_the_prompt(kind: str) -> None:
    driver = Driver(GROUPS[kind])
    request = Request("a", prompt(10), 5, n=3)
    driver.run(request)
    driver.check_outputs(request)
    assert driver.runner.num_positions == 10 + 3 * 4
    wanted = [item.samples for output in driver.outputs for item in output.scheduled]
    assert wanted.count((0, 1, 2)) == 1
    assert max(len(output.block_copies) for output in driver.outputs) == 2 * len(GROUPS[kind])


def test_samples_without_a_seat_follow_later_through_the_cache() -> None:
    driver = Driver(max_num_seqs=2)
    request = Request("a", prompt(10), 5, n=4)
    driver.run(request)
    driver.check_outputs(request)
    assert driver.runner.num_positions < 2 * (10 + 4 * 4)


def test_samples_end_one_by_one() -> None:
    driver = Driver()
    request = Request("a", prompt(6), 9, n=3)
    driver.scheduler.add(request)
    driver.step()
    driver.scheduler.finish(request.sequences[1], "stop")
    driver.step()
    driver.scheduler.finish(request.sequences[0], "stop")
    driver.run()
    assert [s.num_output_tokens for s in request.sequences] == [2, 1, 9]


def test_another_sample_takes_over_the_prompt() -> None:
    driver = Driver(max_num_batched_tokens=4)
    request = Request("a", prompt(10), 3, n=3)
    driver.scheduler.add(request)
    driver.step()
    driver.scheduler.finish(request.sequences[0], "abort")
    driver.scheduler.check_invariants()
    driver.run()
    assert [s.num_output_tokens for s in request.sequences] == [0, 3, 3]
    for sequence in request.sequences[1:]:
        expected = driver.runner.expected_output(request, sequence.index, 64)
        assert sequence.output_token_ids == expected
