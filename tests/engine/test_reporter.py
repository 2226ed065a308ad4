"""What an engine on a fake model reports: its events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstword.batch import ForwardBatch
from firstword.config import EngineConfig
from firstword.engine.engine import Engine
from firstword.engine.model import EngineModel
from firstword.engine.request import RequestOptions
from firstword.kvcache.sources import CacheMiss, PromptSources
from firstword.ops.cost import Cost
from firstword.sampling.params import SamplingParams
from firstword.trace import events
from firstword.trace.events import Event
from firstword.trace.recorder import Recorder
from tests.engine.rig import (
    BLOCKS,
    CONTEXT,
    GREEDY,
    SPEC,
    VOCAB,
    Rig,
    SuccessorRunner,
    rig,
)
from tests.fakes import FakeClock


def test_cached_tokens_are_counted_and_not_computed() -> None:
    it = rig()
    prompt = list(range(12))
    it.engine.add_request("a", prompt, GREEDY)
    it.run()
    it.engine.add_request("b", [*prompt[:10], 0, 0], GREEDY)
    it.run()
    metrics = it.engine.release("b")
    assert metrics.num_cached_tokens == 10
    assert metrics.num_computed_tokens == 2 + 3
    assert sum(step.batch.num_tokens for step in it.runner.steps) == 15 + 5
    matched = [e for e in it.events if isinstance(e, events.PrefixMatched)]
    assert [(e.request_id, e.num_cached_tokens, e.num_copied_tokens) for e in matched] == [
        ("a", 0, 0),
        ("b", 10, 2),
    ]


def test_p03_a_miss_is_in_the_event_and_in_the_metrics() -> None:
    it = rig()
    it.engine.add_request("a", list(range(12)), GREEDY)
    it.run()
    it.engine.add_request("b", [*range(5), 9, *range(6, 12)], GREEDY)
    it.run()
    miss = CacheMiss("different_text", 5, 7, (9, *range(6, 12)), tuple(range(5, 12)))
    metrics = it.engine.release("b")
    assert (metrics.sources, metrics.miss) == (PromptSources(memory=5), miss)
    matched = [e for e in it.events if isinstance(e, events.PrefixMatched)]
    assert [(e.num_disk_tokens, e.miss) for e in matched] == [(0, None), (0, miss)]


@pytest.mark.parametrize(
    ("kv_cache", "prefix_caching"), [(True, False), (False, True), (False, False)]
)
def test_nothing_is_reused_where_that_is_switched_off(kv_cache: bool, prefix_caching: bool) -> None:
    it = rig(enable_kv_cache=kv_cache, enable_prefix_caching=prefix_caching)
    for name in ("a", "b"):
        it.engine.add_request(name, list(range(12)), GREEDY)
        assert it.run()[name] == [12, 13, 14, 15]
        assert it.engine.release(name).num_cached_tokens == 0


def test_a_salt_keeps_requests_apart() -> None:
    it = rig()
    for name, salt in (("a", "x"), ("b", "y"), ("c", "x")):
        it.engine.add_request(name, list(range(12)), GREEDY, RequestOptions(salt=salt))
        it.run()
    assert [it.engine.release(name).num_cached_tokens for name in "abc"] == [0, 0, 11]


def test_priorities_go_first() -> None:
    it = rig(max_num_seqs=1)
    it.engine.add_request("low", [1], GREEDY)
    it.engine.add_request("high", [5], GREEDY, RequestOptions(priority=1))
    assert list(it.run()) == ["high", "low"]


def test_events_come_in_the_order_of_what_happened() -> None:
    it = rig(max_num_batched_tokens=8)
    it.engine.add_request("a", list(range(10)), replace(GREEDY, max_tokens=2))
    it.run()
    assert [type(e).__name__ for e in it.events] == [
        "RequestQueued",
        "PrefixMatched",
        "StepExecuted",
        "StepExecuted",
        "TokenSampled",
        "StepExecuted",
        "TokenSampled",
        "SequenceFinished",
    ]
    times = [e.time for e in it.events]
    assert times == sorted(times)
    steps = [e for e in it.events if isinstance(e, events.StepExecuted)]
    assert [(e.step, e.start, e.time) for e in steps] == [
        (1, 100.0, 101.0),
        (2, 101.0, 102.0),
        (3, 102.0, 103.0),
    ]
    chunks = [(c.start, c.num_tokens) for e in steps for c in e.chunks]
    assert chunks == [(0, 8), (8, 2), (10, 1)]
    assert [e.kv_bytes_in_use for e in steps] == [2 * SPEC.page_bytes, 3 * SPEC.page_bytes, 0]
    assert {(e.forward_ms, e.sampling_ms) for e in steps} == {(900, 100)}
    tokens = [e for e in it.events if isinstance(e, events.TokenSampled)]
    assert [(e.step, e.position, e.token_id) for e in tokens] == [(2, 10, 10), (3, 11, 11)]


def small_rig(num_blocks: int) -> Rig:
    clock, recorder, seen = FakeClock(), Recorder(), list[Event]()
    recorder.listen(seen.append)
    model = EngineModel(VOCAB, CONTEXT, frozenset(), "f", SPEC, num_blocks)
    config = EngineConfig(debug=True, enable_prefix_caching=False)
    runner = SuccessorRunner(clock)
    return Rig(Engine(runner, model, config, recorder=recorder, clock=clock), runner, clock, seen)


def test_a_preempted_sequence_comes_to_the_same_tokens_and_says_so() -> None:
    """Two sequences of eight blocks each do not fit a pool of twelve."""
    it = small_rig(num_blocks=12)
    params = SamplingParams(temperature=5.0, seed=4, max_tokens=24)
    for name in ("a", "b"):
        it.engine.add_request(name, list(range(8)), params)
    tokens = it.run()
    assert tokens["a"] == tokens["b"]
    alone = rig()
    alone.engine.add_request("a", list(range(8)), params)
    assert tokens["a"] == alone.run()["a"]
    lost = [e for e in it.events if isinstance(e, events.SequencePreempted)]
    assert lost
    assert {e.request_id for e in lost} == {"b"}
    assert all(e.num_lost_tokens > 0 and e.reason for e in lost)
    metrics = it.engine.release("b")
    assert metrics.num_preemptions == len(lost)
    assert metrics.num_computed_tokens == 31 + sum(e.num_lost_tokens for e in lost)


def test_whose_key_holds_most_is_preempted_though_another_is_younger() -> None:
    it = small_rig(num_blocks=14)
    params = replace(GREEDY, max_tokens=20)
    for name, key in (("a", "many"), ("b", "many"), ("c", "one")):
        it.engine.add_request(name, list(range(8)), params, RequestOptions(key=key))
    it.run()
    lost = [e for e in it.events if isinstance(e, events.SequencePreempted)]
    assert lost[0].request_id == "b"  # without keys it would be "c"


def test_models_share_no_blocks() -> None:
    """The fingerprint is part of every key: blocks kept on disk may meet another model."""
    keys = []
    for fingerprint in ("one", "two", "one"):
        clock = FakeClock()
        model = EngineModel(VOCAB, CONTEXT, frozenset(), fingerprint, SPEC, BLOCKS)
        engine = Engine(SuccessorRunner(clock), model, EngineConfig(), clock=clock)
        engine.add_request("a", list(range(8)), GREEDY)
        sequence = engine._requests["a"].request.sequences[0]
        engine.step()
        keys.append(tuple(sequence.block_keys))
    assert keys[0] == keys[2]
    assert not set(keys[0]) & set(keys[1])


def test_candidates_are_recorded_for_events_and_for_requests_that_want_them() -> None:
    it = rig(num_top_logprobs=2)
    it.engine.add_request("a", [1], replace(GREEDY, max_tokens=1))
    it.engine.add_request("b", [1], replace(GREEDY, max_tokens=1, logprobs=5))
    outputs = {o.request_id: o for o in it.outputs()}
    assert [c.token_id for c in outputs["a"].candidates] == [2, 3]
    assert [c.token_id for c in outputs["b"].candidates] == [2, 3, 4, 5, 6]
    sampled = [e for e in it.events if isinstance(e, events.TokenSampled)]
    assert [len(e.candidates) for e in sampled] == [2, 5]
    assert sampled[0].logprob == outputs["a"].logprob == outputs["a"].candidates[0].logprob


def test_without_a_listener_the_cost_of_a_step_is_not_computed() -> None:
    def cost_of(batch: ForwardBatch) -> Cost:
        raise AssertionError("nobody asked")

    clock = FakeClock()
    model = replace(EngineModel(VOCAB, CONTEXT, frozenset(), "f", SPEC, BLOCKS), cost_of=cost_of)
    engine = Engine(SuccessorRunner(clock), model, EngineConfig(), clock=clock)
    engine.add_request("a", [1], GREEDY)
    assert len(engine.step()) == 1


def test_an_idle_engine_does_nothing() -> None:
    it = rig()
    assert it.engine.step() == []
    assert it.runner.steps == []
