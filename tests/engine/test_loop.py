from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from firstword.batch import StepInput
from firstword.engine import loop as module
from firstword.engine.loop import EngineLoop
from firstword.engine.messages import (
    Abort,
    Accepted,
    Add,
    Command,
    Refused,
    Shutdown,
    StepMessage,
    Stop,
)
from firstword.engine.request import RequestOptions
from firstword.errors import ConfigError, PromptTooLongError, SamplingError, StepStoppedError
from firstword.sampling.params import SamplingParams
from tests.engine.rig import GREEDY, SPEC, Rig, rig, rig_above
from tests.fakes import FakeRunner, FakeTier


def play(it: Rig, *commands: Command) -> list[StepMessage]:
    """All messages of a loop that is given these commands, then runs until nothing is left."""
    messages: list[StepMessage] = []
    loop = EngineLoop(it.engine, messages.append)
    for command in commands:
        loop.post(command)
    while loop._turn():
        pass
    return messages


def add(request_id: str, prompt: list[int], params: SamplingParams = GREEDY) -> Add:
    return Add(request_id, prompt, params, RequestOptions())


def tokens_of(messages: list[StepMessage], request_id: str) -> list[int]:
    return [o.token_id for m in messages for o in m.outputs if o.request_id == request_id]


def finished_in(messages: list[StepMessage]) -> list[str]:
    return [done.request_id for message in messages for done in message.finished]


def test_requests_are_accepted_run_and_finished() -> None:
    it = rig()
    messages = play(it, add("a", [1, 2]), add("b", [5]))
    replies = messages[0].replies
    assert [(type(r), r.request_id) for r in replies] == [(Accepted, "a"), (Accepted, "b")]
    first = replies[0]
    assert isinstance(first, Accepted) and first.params.seed is not None
    assert tokens_of(messages, "a") == [3, 4, 5, 6]
    assert tokens_of(messages, "b") == [6, 7, 8, 9]
    assert finished_in(messages) == ["a", "b"]
    assert not it.engine.knows("a")


def test_one_message_holds_a_whole_step() -> None:
    messages = play(rig(), add("a", [1, 2]), add("b", [5]))
    assert [len(message.outputs) for message in messages] == [2, 2, 2, 2]


def test_requests_that_cannot_be_are_refused_with_the_reason() -> None:
    it = rig()
    messages = play(it, add("long", [1] * 99), add("odd", [77]), add("a", [1]), add("a", [2]))
    problems = {r.request_id: type(r.error) for r in messages[0].replies if isinstance(r, Refused)}
    assert problems == {"long": PromptTooLongError, "odd": ConfigError, "a": ConfigError}
    assert tokens_of(messages, "a") == [2, 3, 4, 5]


def test_progress_is_told_while_a_prompt_is_read() -> None:
    it = rig(max_num_batched_tokens=4)
    messages = play(it, add("a", [1] * 10))
    done = [p.progress.num_computed_tokens for m in messages for p in m.progress]
    assert done == [4, 8, 10]
    assert all(p.progress.num_prompt_tokens == 10 for m in messages for p in m.progress)


def test_an_aborted_request_is_not_heard_of_again() -> None:
    it = rig()
    messages = play(it, add("a", [1]), add("b", [2]), Abort("a"), Abort("unknown"))
    assert tokens_of(messages, "a") == []
    assert finished_in(messages) == ["b"]
    assert it.engine.stats.num_used_blocks == 0


def test_p26_blocks_that_an_abort_gives_back_are_told_at_once() -> None:
    it = rig()
    messages: list[StepMessage] = []
    loop = EngineLoop(it.engine, messages.append)
    loop.post(add("a", [1]))
    loop._turn()
    assert messages[-1].stats.num_used_blocks > 0
    loop.post(Abort("a"))
    assert not loop._turn()
    assert messages[-1].stats.num_used_blocks == messages[-1].stats.num_running == 0
    assert messages[-1].gap_ms is None, "no step was run"


def test_p26_they_are_told_before_the_next_step_of_others() -> None:
    it = rig()
    messages: list[StepMessage] = []
    loop = EngineLoop(it.engine, messages.append)
    loop.post(add("a", [1]))
    loop.post(add("b", [2]))
    loop._turn()
    told: list[int] = []
    it.runner.before = lambda step: told.append(messages[-1].stats.num_running)
    loop.post(Abort("a"))
    loop._turn()
    assert told == [1]


def test_a_stopped_sample_ends_its_request() -> None:
    it = rig()
    messages = play(it, add("a", [1]), Stop("a", 0, "stop"), Stop("unknown", 0, "stop"))
    assert finished_in(messages) == ["a"]
    assert tokens_of(messages, "a") == []


def test_a_row_without_a_token_ends_its_request_only() -> None:
    it = rig()
    it.runner.broken = frozenset({4})
    messages = play(it, add("a", [3]), add("b", [8]))
    refused = [r for m in messages for r in m.replies if isinstance(r, Refused)]
    assert [(r.request_id, type(r.error)) for r in refused] == [("a", SamplingError)]
    assert tokens_of(messages, "b") == [9, 10, 11, 12]


def test_p27_a_step_that_fails_once_is_run_again() -> None:
    it = rig()
    fails = iter([True, False, False, False, False])

    def before(step: StepInput) -> None:
        if next(fails):
            raise RuntimeError("a bolt from the blue")

    it.runner.before = before
    messages = play(it, add("a", [1]))
    assert tokens_of(messages, "a") == [2, 3, 4, 5]


def test_p27_a_step_that_fails_again_ends_its_requests_and_the_loop_lives() -> None:
    it = rig()

    def before(step: StepInput) -> None:
        raise RuntimeError("a bolt from the blue")

    it.runner.before = before
    messages = play(it, add("a", [1]), add("b", [2]))
    refused = {r.request_id for m in messages for r in m.replies if isinstance(r, Refused)}
    assert refused == {"a", "b"}
    it.runner.before = lambda step: None
    assert tokens_of(play(it, add("c", [1])), "c") == [2, 3, 4, 5]


@contextmanager
def running(it: Rig, messages: list[StepMessage]) -> Iterator[EngineLoop]:
    loop = EngineLoop(it.engine, messages.append)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield loop
    finally:
        loop.post(Shutdown())
        thread.join(10)
        assert not thread.is_alive()


def wait_for(messages: list[StepMessage], num_finished: int) -> None:
    deadline = time.monotonic() + 10
    while len(finished_in(messages)) < num_finished:
        assert time.monotonic() < deadline, "the loop does not answer"
        time.sleep(0.001)


def test_commands_come_from_any_thread_and_idle_time_costs_nothing() -> None:
    it = rig()
    messages: list[StepMessage] = []
    with running(it, messages) as loop:
        loop.post(add("a", [1]))
        wait_for(messages, 1)
        start = time.thread_time()
        loop.post(add("b", [1]))
        wait_for(messages, 2)
        assert time.thread_time() >= start
    assert tokens_of(messages, "b") == [2, 3, 4, 5]


def test_p26_an_abort_ends_the_step_under_way() -> None:
    """The runner is told to stop; what it computed is dropped with the request."""
    it = rig()
    messages: list[StepMessage] = []
    in_step, stopped = threading.Event(), threading.Event()

    def before(step: StepInput) -> None:
        in_step.set()
        if not stopped.wait(10):
            raise AssertionError("nobody stopped the step")
        raise StepStoppedError("stopped")

    it.runner.before = before
    it.runner.stop = stopped.set
    with running(it, messages) as loop:
        loop.post(add("a", [1], replace(GREEDY, max_tokens=30)))
        assert in_step.wait(10)
        it.runner.before = lambda step: None
        loop.post(Abort("a"))
        loop.post(add("b", [5]))
        wait_for(messages, 1)
    assert tokens_of(messages, "a") == []
    assert tokens_of(messages, "b") == [6, 7, 8, 9]
    assert it.engine.stats.num_used_blocks == 0


def test_a_shutdown_ends_the_loop_with_requests_in_it() -> None:
    it = rig()
    messages = play(it, add("a", [1]), Shutdown(), add("b", [1]))
    assert finished_in(messages) == []


@pytest.mark.parametrize("neighbours", [0, 1])
def test_a_short_step_is_left_alone_for_the_neighbours_sake(neighbours: int) -> None:
    it = rig()
    stops: list[bool] = []
    it.runner.stop = lambda: stops.append(True)
    loop = EngineLoop(it.engine, lambda message: None)

    def before(step: StepInput) -> None:
        loop.post(Abort("a"))

    it.runner.before = before
    loop.post(add("a", [1]))
    for index in range(neighbours):
        loop.post(add(f"b{index}", [2]))
    loop._turn()
    assert bool(stops) == (neighbours == 0)


def test_work_that_can_wait_is_begun_once_when_nothing_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.01)
    it, messages, idle = rig(), list[StepMessage](), list[int]()
    loop = EngineLoop(it.engine, messages.append)
    loop.post(add("a", [1]))

    def when_idle() -> None:
        idle.append(len(messages))
        loop.post(Shutdown() if idle == [4] else Abort("nobody"))

    loop.run(when_idle)
    assert idle == [4]  # after the four steps of the request


def test_blocks_that_the_disk_had_no_time_for_are_saved_while_nothing_else_is_to_do() -> None:
    tier = FakeTier(FakeRunner(SPEC))
    it = rig_above(tier)
    tier.is_stuck = True
    loop = EngineLoop(it.engine, lambda message: None)
    loop.post(add("a", [1] * 10))
    thread = threading.Thread(target=loop.run)
    thread.start()
    for is_stuck, count in ((True, 0), (False, 3)):
        tier.is_stuck = is_stuck
        for _ in range(200):
            if len(tier.kept) == count and not it.engine.has_work:
                break
            time.sleep(0.01)
        assert len(tier.kept) == count
    loop.post(Shutdown())
    thread.join(10)
    assert not thread.is_alive()
