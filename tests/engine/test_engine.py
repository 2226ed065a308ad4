"""The step loop on a fake model: when requests end, and failures.

Not here: what is refused (test_preparation), events (test_reporter), counts (test_accounting).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstword.batch import StepInput
from firstword.config import EngineConfig
from firstword.engine.engine import Engine
from firstword.engine.model import EngineModel
from firstword.engine.outputs import SequenceOutput
from firstword.errors import CapacityError, ConfigError, PromptTooLongError, SamplingError
from firstword.kvcache.spec import kv_bytes
from firstword.sampling.params import SamplingParams
from firstword.trace import events
from firstword.trace.events import Event
from tests.engine.rig import (
    BLOCKS,
    CONTEXT,
    EOS,
    GREEDY,
    SPEC,
    VOCAB,
    Rig,
    SuccessorRunner,
    by_name,
    rig,
)
from tests.fakes import FakeClock

# --- What is refused, before anything is queued ---


def test_who_is_refused_leaves_nothing_behind_and_its_id_is_free() -> None:
    it = rig()
    with pytest.raises(PromptTooLongError):
        it.engine.add_request("a", [1] * CONTEXT, GREEDY)
    assert not it.engine.has_work
    assert it.events == []
    it.engine.add_request("a", [1] * (CONTEXT - 1), GREEDY)
    assert len(it.run()["a"]) == 1


def test_a_request_that_never_fits_the_pool_is_refused_and_forgotten() -> None:
    clock = FakeClock()
    model = EngineModel(VOCAB, CONTEXT, frozenset(), "f", SPEC, num_blocks=5)
    engine = Engine(SuccessorRunner(clock), model, EngineConfig(), clock=clock)
    with pytest.raises(CapacityError, match=r"24 tokens needs 6 KV blocks.*pool has 5"):
        engine.add_request("a", [1] * 20, GREEDY)
    engine.add_request("a", [1] * 16, GREEDY)


def test_an_id_in_use_is_refused_until_it_is_released() -> None:
    it = rig()
    it.engine.add_request("a", [1], GREEDY)
    with pytest.raises(ConfigError, match="'a' is already in use"):
        it.engine.add_request("a", [2], GREEDY)
    it.run()
    with pytest.raises(ConfigError, match="'a' is already in use"):
        it.engine.add_request("a", [2], GREEDY)
    it.engine.release("a")
    it.engine.add_request("a", [2], GREEDY)
    assert it.run()["a"] == [3, 4, 5, 6]


# --- When a request ends ---


@pytest.mark.parametrize(
    ("max_tokens", "prompt_length", "expected"), [(None, 10, 30), (7, 10, 7), (50, 35, 5)]
)
def test_max_tokens_is_the_rest_of_the_context_at_most(
    max_tokens: int | None, prompt_length: int, expected: int
) -> None:
    it = rig()
    it.engine.add_request("a", [1] * prompt_length, replace(GREEDY, max_tokens=max_tokens))
    outputs = list(it.outputs())
    assert len(outputs) == expected
    assert [o.finish_reason for o in outputs] == [None] * (expected - 1) + ["length"]
    assert outputs[-1].stop_reason is None
    queued = it.events[0]
    assert isinstance(queued, events.RequestQueued)
    assert queued.max_tokens == expected


def test_an_end_token_ends_it_and_is_part_of_the_output() -> None:
    it = rig(eos=frozenset({EOS}))
    it.engine.add_request("a", [EOS - 3], replace(GREEDY, max_tokens=9))
    outputs = list(it.outputs())
    assert [o.token_id for o in outputs] == [13, 14, 15]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", None)
    assert it.num_free == BLOCKS


def test_an_end_token_can_be_ignored_but_not_a_stop_token() -> None:
    it = rig(eos=frozenset({EOS}))
    params = replace(GREEDY, max_tokens=9, ignore_eos=True, stop_token_ids=(2,))
    it.engine.add_request("a", [EOS - 2], params)
    outputs = list(it.outputs())
    assert [o.token_id for o in outputs] == [14, 15, 0, 1, 2]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", 2)


def test_no_end_token_comes_before_min_tokens() -> None:
    it = rig(eos=frozenset({EOS}))
    params = replace(GREEDY, max_tokens=9, min_tokens=3, stop_token_ids=(0,))
    it.engine.add_request("a", [EOS - 1], params)
    outputs = list(it.outputs())
    # 15 and 0 are banned for three tokens, so 1, 2 and 3 come; later they end it again.
    assert [o.token_id for o in outputs][:3] == [1, 2, 3]
    assert len(outputs) == 9
    it.engine.add_request("b", [EOS - 4], replace(params, max_tokens=20))
    assert it.run()["b"] == [12, 13, 14, 15]


def test_a_stop_string_ends_one_sequence_once() -> None:
    it = rig()
    it.engine.add_request("a", [1], replace(GREEDY, n=2))
    it.engine.step()
    it.engine.stop("a", 0, "END")
    it.engine.stop("a", 0, "END")
    tokens = it.run()
    assert tokens == {"a.1": [3, 4, 5]}
    it.engine.stop("a", 1, "END")  # its last token completed the string: it has ended already
    finished = [e for e in it.events if isinstance(e, events.SequenceFinished)]
    assert [(e.sample_index, e.reason, e.stop_reason) for e in finished] == [
        (0, "stop", "END"),
        (1, "length", None),
    ]
    assert it.num_free == BLOCKS


# --- Seeds ---


def test_a_seed_in_force_is_reported_and_gives_the_same_again() -> None:
    it = rig()
    params = SamplingParams(temperature=5.0, max_tokens=12)
    seeds = {n: it.engine.add_request(n, [1, 2, 3], params).seed for n in ("a", "b")}
    assert seeds["a"] != seeds["b"]
    queued = [e for e in it.events if isinstance(e, events.RequestQueued)]
    assert {e.request_id: e.seed for e in queued} == seeds
    first = it.run()
    assert first["a"] != first["b"]
    it.engine.add_request("again", [1, 2, 3], replace(params, seed=seeds["a"]))
    assert it.run()["again"] == first["a"]


def test_samples_of_a_request_differ_and_share_its_prompt() -> None:
    it = rig(max_num_batched_tokens=64)
    params = SamplingParams(temperature=5.0, seed=3, max_tokens=8, n=3)
    it.engine.add_request("a", list(range(10)), params)
    tokens = it.run()
    assert len({tuple(t) for t in tokens.values()}) == 3
    metrics = it.engine.release("a")
    assert metrics.num_computed_tokens == 10 + 3 * 7
    assert metrics.kv_bytes == 3 * kv_bytes(SPEC, 17)
    alone = rig()
    alone.engine.add_request("a", list(range(10)), replace(params, n=1))
    assert alone.run()["a"] == tokens["a"]


# --- Ends that are not the request's own ---


@pytest.mark.parametrize("steps", [0, 1, 3], ids=["queued", "in its prompt", "decoding"])
@pytest.mark.parametrize("n", [1, 2])
def test_an_abort_gives_all_blocks_back(steps: int, n: int) -> None:
    it = rig(max_num_batched_tokens=8)
    it.engine.add_request("a", [5] * 12, replace(GREEDY, max_tokens=20, n=n))
    it.engine.add_request("b", [3], GREEDY)
    for _ in range(steps):
        it.engine.step()
    it.engine.abort("a")
    it.engine.abort("a")
    it.engine.abort("unknown")
    rest = it.run()
    assert set(rest) <= {"b"}
    assert it.num_free == BLOCKS
    finished = [e for e in it.events if isinstance(e, events.SequenceFinished)]
    aborted = [e.sample_index for e in finished if e.request_id == "a" and e.reason == "abort"]
    assert sorted(aborted) == list(range(n))
    metrics = it.engine.release("a")
    assert (metrics.ttft is None) == (steps < 2)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, MemoryError])
@pytest.mark.parametrize("at", [1, 2, 4])
def test_a_step_that_fails_is_computed_again(error: type[BaseException], at: int) -> None:
    params = SamplingParams(temperature=5.0, seed=1, max_tokens=6, n=2)

    def start(it: Rig) -> None:
        it.engine.add_request("a", list(range(11)), params)
        it.engine.add_request("b", [4, 5], replace(params, seed=2))

    undisturbed = rig(max_num_batched_tokens=8)
    start(undisturbed)
    expected = undisturbed.run()

    it = rig(max_num_batched_tokens=8)
    start(it)
    calls: list[StepInput] = []

    def fail(step: StepInput) -> None:
        calls.append(step)
        if len(calls) == at:
            raise error("stop")

    it.runner.before = fail
    outputs: list[SequenceOutput] = []
    with pytest.raises(error, match="stop"):
        outputs += it.outputs()
    it.engine.scheduler.check_invariants()
    assert it.engine.has_work
    outputs += it.outputs()
    assert by_name(outputs) == expected
    assert it.num_free == BLOCKS


def test_an_interrupted_step_computes_its_positions_once_more() -> None:
    it = rig()
    it.engine.add_request("a", list(range(10)), GREEDY)
    it.engine.step()

    def interrupt(step: StepInput) -> None:
        raise KeyboardInterrupt

    it.runner.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        it.engine.step()
    it.runner.before = lambda step: None
    assert it.run()["a"] == [11, 12, 13]
    # What was computed before is still there.
    assert [step.batch.num_tokens for step in it.runner.steps] == [10, 1, 1, 1]


def test_an_interruption_before_the_model_runs_is_harmless_too() -> None:
    it = rig()
    it.engine.add_request("a", [1], GREEDY)

    def interrupt(event: Event) -> None:
        if isinstance(event, events.PrefixMatched):
            stop_listening()
            raise KeyboardInterrupt

    stop_listening = it.engine.recorder.listen(interrupt)
    with pytest.raises(KeyboardInterrupt):
        it.engine.step()
    assert it.run()["a"] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "kind", [events.StepExecuted, events.TokenSampled, events.SequenceFinished]
)
@pytest.mark.parametrize("broken", [frozenset[int](), frozenset({9})], ids=["sound", "failing"])
def test_an_interruption_after_the_model_ran_loses_no_token(
    kind: type[Event], broken: frozenset[int]
) -> None:
    it = rig()
    it.runner.broken = broken
    it.engine.add_request("a", [1], GREEDY)
    it.engine.add_request("b", [6], GREEDY)

    def interrupt(event: Event) -> None:
        if isinstance(event, kind):
            stop_listening()
            raise KeyboardInterrupt

    stop_listening = it.engine.recorder.listen(interrupt)
    outputs: list[SequenceOutput] = []
    with pytest.raises(KeyboardInterrupt):
        outputs += it.outputs()
    outputs += it.outputs()
    last = -1 if broken else 10
    assert by_name(outputs) == {"a": [2, 3, 4, 5], "b": [7, 8, 9, last]}
    assert it.num_free == BLOCKS


def test_what_a_released_request_was_owed_is_dropped_with_it() -> None:
    it = rig()
    it.engine.add_request("a", [1], GREEDY)

    def interrupt(event: Event) -> None:
        if isinstance(event, events.TokenSampled):
            stop_listening()
            raise KeyboardInterrupt

    stop_listening = it.engine.recorder.listen(interrupt)
    with pytest.raises(KeyboardInterrupt):
        it.engine.step()
    it.engine.abort("a")
    it.engine.release("a")
    assert not it.engine.has_work
    assert it.engine.step() == []


def test_an_interrupted_request_can_be_aborted() -> None:
    it = rig()
    it.engine.add_request("a", [1], GREEDY)
    it.engine.step()

    def interrupt(step: StepInput) -> None:
        raise KeyboardInterrupt

    it.runner.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        it.engine.step()
    it.engine.abort("a")
    assert not it.engine.has_work
    assert it.num_free == BLOCKS


@pytest.mark.parametrize("n", [1, 3])
def test_a_row_without_finite_logits_fails_its_own_request_alone(n: int) -> None:
    it = rig()
    it.runner.broken = frozenset({9})
    it.engine.add_request("sound", [1], GREEDY)
    it.engine.add_request("broken", [6], replace(GREEDY, max_tokens=9, n=n))
    outputs = list(it.outputs())
    assert by_name(o for o in outputs if o.request_id == "sound") == {"sound": [2, 3, 4, 5]}
    broken = [o for o in outputs if o.request_id == "broken" and o.sample_index == 0]
    assert [o.token_id for o in broken] == [7, 8, 9, -1]
    last = broken[-1]
    assert isinstance(last.error, SamplingError)
    assert "no finite logit" in str(last.error)
    assert last.finish_reason == "abort"
    assert it.num_free == BLOCKS
    finished = [e for e in it.events if isinstance(e, events.SequenceFinished)]
    reasons = {(e.request_id, e.sample_index): e.reason for e in finished}
    assert reasons == {("sound", 0): "length", **{("broken", i): "abort" for i in range(n)}}
    assert len(finished) == n + 1
    assert it.engine.release("broken").ttft is not None


def test_when_one_sample_fails_the_others_of_its_request_end_too() -> None:
    it = rig()
    it.runner.broken = frozenset({9})
    params = SamplingParams(temperature=5.0, seed=1, n=4, max_tokens=30)
    it.engine.add_request("a", [1], params)
    outputs = list(it.outputs())
    errors = [o for o in outputs if o.error is not None]
    assert errors
    assert outputs[-len(errors) :] == errors
    assert it.num_free == BLOCKS


def test_p26_a_step_that_begins_with_an_unwanted_request_is_ended() -> None:
    """The abort came after the commands were taken, and before there was a step to stop."""
    it = rig()
    stops: list[bool] = []
    it.runner.stop = lambda: stops.append(True)
    it.engine.add_request("a", [1, 2], GREEDY)
    it.engine.interrupt("a")
    assert stops == []
    it.engine.step()
    assert stops == [True]
    it.engine.forget("a")
    it.engine.add_request("a", [1, 2], GREEDY)
    it.engine.step()
    assert stops == [True]
