"""Sequences that do not run through: preempted, ended from outside, or in a step that failed."""

from __future__ import annotations

import pytest

from firstword.engine.request import Request, SequenceStatus
from tests.fakes import Driver, full_group, sliding_group, state_group

GROUPS = {
    "full": (full_group(0),),
    "sliding": (full_group(0), sliding_group(1, 6), sliding_group(2, 6)),
    "state": (full_group(0), state_group(1, 8)),
}


def prompt(num_tokens: int, first: int = 100) -> tuple[int, ...]:
    return tuple(range(first, first + num_tokens))


# -- Preemption ---------------------------------------------------------------------------------


def test_p10_a_full_pool_preempts_the_youngest_which_then_recovers() -> None:
    driver = Driver(num_blocks=6)
    old, young = Request("old", prompt(8), 12), Request("young", prompt(8, 200), 12)
    driver.run(old, young)
    driver.check_outputs(old, young)
    preempted = [p for output in driver.outputs for p in output.preemptions]
    assert {p.sequence for p in preempted} == {young.sequences[0]}
    assert preempted[0].reason == "youngest"
    assert preempted[0].num_lost_tokens > 0
    assert young.sequences[0].num_preemptions == len(preempted)


def test_the_lowest_priority_is_preempted_however_old() -> None:
    driver = Driver(num_blocks=6)
    low = Request("low", prompt(8), 12)
    high = Request("high", prompt(8, 200), 12, priority=1, arrival_time=1)
    driver.run(low, high)
    assert low.sequences[0].num_preemptions > 0
    assert high.sequences[0].num_preemptions == 0


def test_a_preempted_sequence_waits_in_front_of_its_class() -> None:
    driver = Driver(num_blocks=6, max_num_seqs=2)
    requests = [Request(str(i), prompt(8, 100 * i), 12, arrival_time=i) for i in range(3)]
    driver.run(*requests)
    started = [s.request.request_id for o in driver.outputs for s, _ in o.prefix_hits]
    assert started.index("2") > started.index("1", started.index("1") + 1)


def test_a_protected_sequence_keeps_its_blocks() -> None:
    driver = Driver(num_blocks=10, max_model_len=40)
    brief, old, young = (
        Request(name, prompt(8, 100 * i), max_tokens, arrival_time=i)
        for i, (name, max_tokens) in enumerate({"brief": 6, "old": 30, "young": 30}.items())
    )
    young.sequences[0].num_preemptions = 1
    driver.run(brief, old, young)
    driver.check_outputs(brief, old, young)
    preempted = [p for output in driver.outputs for p in output.preemptions]
    assert [p.sequence.request.request_id for p in preempted[:2]] == ["young", "old"]
    assert [p.reason for p in preempted[:2]] == ["youngest", "the others are protected"]


def test_a_sequence_alone_that_has_no_room_to_copy_starts_again() -> None:
    """A sample holds a block to copy from, the pool has none to copy to, and nobody else runs."""
    driver = Driver(num_blocks=3)
    request = Request("a", prompt(10), 2, n=2)
    driver.scheduler.add(request)
    driver.step()
    driver.scheduler.finish(request.sequences[0], "stop")
    output = driver.step()
    (preemption,) = output.preemptions
    assert preemption.sequence is request.sequences[1]
    assert preemption.reason == "nobody else runs"
    assert [item.start for item in output.scheduled] == [0]
    assert not driver.scheduler.has_work


def test_num_cached_tokens_is_not_changed_by_a_preemption() -> None:
    driver = Driver(num_blocks=6)
    old, young = Request("old", prompt(8), 12), Request("young", prompt(8, 200), 12)
    driver.run(old, young)
    assert young.sequences[0].num_cached_tokens == 0


# -- Ends from outside --------------------------------------------------------------------------


def test_abort_while_waiting_and_while_running() -> None:
    driver = Driver(max_num_seqs=1)
    running, waiting = Request("a", prompt(5), 9, n=2), Request("b", prompt(5, 200), 9)
    driver.scheduler.add(running)
    driver.scheduler.add(waiting)
    driver.step()
    assert driver.scheduler.abort("b") == (waiting.sequences[0],)
    assert set(driver.scheduler.abort("a")) == set(running.sequences)
    assert driver.scheduler.abort("a") == ()
    assert {s.finish_reason for s in running.sequences} == {"abort"}
    assert not driver.scheduler.has_work
    assert driver.manager.num_free_blocks == driver.num_blocks


def test_abort_during_a_step_keeps_the_blocks_until_it_is_over() -> None:
    driver = Driver()
    driver.scheduler.add(Request("a", prompt(5), 9, n=2))
    output = driver.schedule()
    held = driver.manager.num_free_blocks
    driver.scheduler.abort("a")
    driver.scheduler.check_invariants()
    assert driver.manager.num_free_blocks == held < driver.num_blocks
    assert driver.update(output) == ()
    assert driver.manager.num_free_blocks == driver.num_blocks


def test_what_an_aborted_step_computed_is_reused() -> None:
    driver = Driver()
    driver.scheduler.add(Request("a", prompt(6), 9))
    output = driver.schedule()
    driver.scheduler.abort("a")
    driver.update(output)
    again = Request("b", prompt(6), 1)
    driver.run(again)
    assert again.sequences[0].num_cached_tokens == 5


def test_a_finished_sequence_needs_no_token() -> None:
    driver = Driver()
    request = Request("a", prompt(5), 9)
    driver.scheduler.add(request)
    driver.step()
    output = driver.schedule()
    driver.scheduler.finish(request.sequences[0], "stop", 3)
    assert driver.scheduler.update(output, {}) == ()
    assert request.sequences[0].status is SequenceStatus.FINISHED
    assert (request.sequences[0].finish_reason, request.sequences[0].stop_reason) == ("stop", 3)
    driver.scheduler.finish(request.sequences[0], "abort")
    assert request.sequences[0].finish_reason == "stop"


def test_a_state_that_a_failed_step_has_moved_on_is_not_kept() -> None:
    driver = Driver(GROUPS["state"])
    request = Request("a", prompt(12), 2)
    driver.scheduler.add(request)
    driver.step()  # to the checkpoint at 8
    output = driver.schedule()
    driver.runner.run(output)
    driver.scheduler.discard(output)
    assert driver.step().scheduled[0].start == 0
    driver.run()
    driver.check_outputs(request)


@pytest.mark.parametrize("kind", GROUPS)
def test_a_step_that_failed_is_computed_again(kind: str) -> None:
    driver = Driver(GROUPS[kind], max_num_batched_tokens=8)
    driver.run(Request("a", prompt(9), 2))
    requests = [Request("b", (*prompt(6), 1, 2, 3), 6, n=2), Request("c", prompt(9, 300), 6)]
    for request in requests:
        driver.scheduler.add(request)
    for step in range(1000):
        if not driver.scheduler.has_work:
            break
        output = driver.schedule()
        if step in (0, 2, 5):
            driver.scheduler.discard(output)  # nothing of it was written
            driver.scheduler.check_invariants()
        else:
            driver.update(output)
    assert not driver.scheduler.has_work
    driver.check_outputs(*requests)


def test_a_stopped_step_costs_those_that_ran_before_nothing() -> None:
    driver = Driver(max_num_batched_tokens=8)
    chat, long = Request("chat", prompt(4), 9), Request("long", prompt(20, 200), 2)
    driver.scheduler.add(chat)
    driver.step()
    driver.scheduler.add(long)
    driver.step()
    new = Request("new", prompt(3, 300), 2, arrival_time=1)
    driver.scheduler.add(new)
    before = {s: s.num_computed_tokens for s in (chat.sequences[0], long.sequences[0])}
    output = driver.schedule()
    driver.scheduler.abort("chat")
    driver.scheduler.discard(output)
    driver.scheduler.check_invariants()
    assert long.sequences[0].num_computed_tokens == before[long.sequences[0]] > 0
    assert new.sequences[0].status is SequenceStatus.WAITING
    assert [s.num_preemptions for s in (long.sequences[0], new.sequences[0])] == [0, 0]
    driver.run()
    driver.check_outputs(long, new)


def test_a_preemption_that_leads_to_no_step_is_reported_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(num_blocks=3)
    request = Request("a", prompt(10), 2, n=2)
    driver.scheduler.add(request)
    driver.step()
    driver.scheduler.finish(request.sequences[0], "stop")
    with monkeypatch.context() as patch:
        patch.setattr(driver.manager, "admit", lambda *_: False)
        assert driver.scheduler.schedule() is None
    output = driver.step()
    assert [p.sequence for p in output.preemptions] == [request.sequences[1]]


@pytest.mark.parametrize(("kind", "num_cached"), [("full", 7), ("sliding", 7), ("state", 0)])
def test_one_that_ends_while_a_step_is_stopped_stays_cached_to_the_token(
    kind: str, num_cached: int
) -> None:
    """As at an end token, beyond which a step has run ahead."""
    driver = Driver(GROUPS[kind])
    request = Request("a", prompt(6), 9)
    driver.scheduler.add(request)
    driver.step()
    driver.step()
    output = driver.schedule()
    driver.scheduler.finish(request.sequences[0], "stop")
    driver.scheduler.discard(output)
    driver.scheduler.check_invariants()
    next_turn = Request("b", (*request.sequences[0].token_ids, 1, 2), 2)
    driver.run(next_turn)
    assert next_turn.sequences[0].num_cached_tokens == num_cached
    driver.check_outputs(next_turn)
