from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from firstword.errors import ConfigError
from firstword.kvcache.sources import CacheMiss
from firstword.trace.events import (
    Event,
    ModelLoaded,
    PrefixMatched,
    PromptEncoded,
    RequestQueued,
    ScheduledChunk,
    SequenceFinished,
    SequencePreempted,
    StepExecuted,
    TextEmitted,
    TokenCandidate,
    TokenSampled,
)
from firstword.trace.explain import explain
from firstword.trace.explanation import Computations, Explanation, SourcesPart
from firstword.trace.misses import ExplainedMiss

# SmolLM2 135M: 9 query heads share 3 key/value heads of 64 values in each of 30 layers.
MODEL = ModelLoaded(
    time=1.0,
    name="smollm2:135m",
    seconds=0.5,
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    kv_dtype="float16",
    kv_value_bytes=2,
    kv_bytes_per_token=23_040,
    sliding_window=None,
    num_sliding_layers=0,
    max_model_len=8192,
    kv_bytes_full_context=8192 * 23_040,
    kv_pool_bytes=2**30,
    weight_bytes=98_000_000,
    backend="reference",
    num_threads=2,
)
ENCODED = PromptEncoded(
    time=10.002,
    request_id="r",
    seconds=0.002,
    token_ids=(1, 2, 3, 4),
    token_texts=("<s>", "a", "b", "c"),
    num_typed_tokens=3,
    num_template_tokens=1,
    prompt_text="<s>abc",
)
QUEUED = RequestQueued(10.002, "r", 4, 16, 1, "greedy: the largest logit", 7, 0)


def _step(number: int, start: float, *chunks: ScheduledChunk) -> StepExecuted:
    rows = sum(chunk.num_tokens for chunk in chunks)
    return StepExecuted(
        time=start + 0.010,
        step=number,
        start=start,
        chunks=chunks,
        forward_ms=8.0,
        sampling_ms=1.0,
        flops=1e9 * rows,
        bytes_moved=1e8,
        num_attended=10.0,
        kv_bytes_in_use=32 * 23_040,
        predicted_ms=9.0,
    )


def _chunk(start: int, num_tokens: int, request: str = "r", sample: int = 0) -> ScheduledChunk:
    return ScheduledChunk(request, sample, start, num_tokens)


def _token(step: int, position: int, token_id: int, time: float) -> TokenSampled:
    candidates = tuple(
        TokenCandidate(token_id + i, math.log(0.5 / 2**i), 1.0 if i == 0 else 0.0) for i in range(7)
    )
    return TokenSampled(
        time, "r", 0, step, position, token_id, math.log(0.5), 1.0, 1, None, candidates
    )


def _finished(time: float, tokens: int, kv_bytes: int = 0) -> SequenceFinished:
    return SequenceFinished(time, "r", 0, "length", None, tokens, kv_bytes)


def _events() -> list[Event]:
    """Prompt of 4, prefill in one pass, 3 tokens: at 10.022, 10.042 and 10.062."""
    return [
        MODEL,
        ENCODED,
        QUEUED,
        _step(5, 10.012, _chunk(0, 4)),
        _token(5, 4, 100, 10.022),
        TextEmitted(10.023, "r", 0, "x"),
        _step(6, 10.030, _chunk(4, 1)),
        _token(6, 5, 101, 10.042),
        _step(7, 10.050, _chunk(5, 1)),
        _token(7, 6, 102, 10.062),
        _finished(10.066, 3, kv_bytes=6 * 23_040),
    ]


def _explain(events: list[Event], sample_index: int = 0) -> Explanation:
    return explain(events, "r", lambda token: f"t{token}", sample_index)


def test_the_prompt_and_what_read_it() -> None:
    told = _explain(_events())
    assert (told.model, told.backend, told.num_threads) == ("smollm2:135m", "reference", 2)
    assert told.load_ms == 500
    assert [token.text for token in told.prompt.tokens] == ["<s>", "a", "b", "c"]
    assert told.prompt.num_typed_tokens == 3
    assert told.prompt.num_template_tokens == 1
    assert told.prompt.encode_ms == pytest.approx(2)
    assert (told.prefill.num_rows, told.prefill.flops) == (4, 4e9)
    assert told.prefill.ms == pytest.approx(10)
    assert len(told.prefill.passes) == 1
    assert told.prefill.passes[0].ms == 9


def test_a_prompt_read_in_chunks_beside_another_request() -> None:
    events: list[Event] = [
        MODEL,
        QUEUED,
        PrefixMatched(10.003, "r", 0, 1, 1),
        PrefixMatched(10.003, "other", 0, 99, 0),
        _step(1, 10.010, _chunk(1, 2), _chunk(50, 6, "other")),
        _step(2, 10.025, _chunk(3, 1)),
        _token(2, 4, 100, 10.035),
        _finished(10.035, 1),
    ]
    told = _explain(events)
    assert told.prefill.num_cached_tokens == 1
    assert [(p.step, p.start, p.num_rows, p.num_other_rows) for p in told.prefill.passes] == [
        (1, 1, 2, 6),
        (2, 3, 1, 0),
    ]
    assert (told.prefill.num_rows, told.prefill.flops) == (3, 3e9)
    assert told.prefill.ms == pytest.approx(25)
    assert told.cache.num_computed == 3
    assert (told.prompt.num_tokens, told.prompt.tokens, told.prompt.encode_ms) == (4, (), 0)


def test_keys_and_values_from_one_value_to_the_context() -> None:
    kv = _explain(_events()).kv
    assert [(step.what, step.bytes) for step in kv.steps] == [
        ("one value", 2),
        ("one token in one head of one layer", 256),
        ("one token in one layer", 768),
        ("one token", 23_040),
        ("this sequence", 138_240),
        ("the full context", 188_743_680),
    ]
    assert kv.steps[1].formula == "a key and a value: 2 x 64 values x 2 bytes"
    assert kv.steps[2].formula == "3 key/value heads x 256 bytes"
    assert kv.steps[3].formula == "30 layers x 768 bytes"
    assert kv.steps[4].formula == "6 tokens x 23,040 bytes"
    assert kv.grouping_ratio == 3
    assert kv.bytes_per_token_ungrouped == 69_120
    assert kv.num_tokens == 6


def test_layers_with_a_window_keep_only_its_tokens() -> None:
    # Gemma 3 270M: 15 of 18 layers keep 512 tokens.
    layer = 2 * 256 * 2
    model = replace(
        MODEL,
        num_layers=18,
        num_heads=4,
        num_kv_heads=1,
        head_dim=256,
        kv_bytes_per_token=18 * layer,
        sliding_window=512,
        num_sliding_layers=15,
        max_model_len=32_768,
        kv_bytes_full_context=layer * (3 * 32_768 + 15 * 512),
    )
    held = layer * (3 * 6 + 15 * 6)
    events = [model, *_events()[1:-1], _finished(10.066, 3, held)]
    told = _explain(events)
    assert [step.bytes for step in told.kv.steps[-2:]] == [held, 108_527_616]
    assert told.kv.steps[-1].formula == (
        "3 layers x 32,768 tokens x 1,024 bytes + "
        "15 layers x 512 tokens x 1,024 bytes (they keep the last 512)"
    )
    assert "15 layers x 6 tokens" in told.kv.steps[-2].formula
    for step in told.kv.steps[-2:]:  # each formula gives its bytes
        terms = step.formula.split(" (")[0].replace(",", "").split(" + ")
        numbers = [[int(part.split()[0]) for part in term.split(" x ")] for term in terms]
        assert sum(math.prod(term) for term in numbers) == step.bytes
    narrow = _explain([replace(model, sliding_window=2), *events[1:]])
    # Passes over 4, 5 and 6 tokens; a query attends to two tokens at most.
    assert narrow.cache.sliding_dot_products == Computations(11, 7 + 9 + 11)
    assert narrow.cache.dot_products == Computations(21, 10 + 15 + 21)


def test_each_token_and_its_candidates() -> None:
    decode = _explain(_events()).decode
    assert [(d.index, d.num_input_tokens, d.num_rows) for d in decode] == [
        (0, 4, 4),
        (1, 5, 1),
        (2, 6, 1),
    ]
    assert [d.text for d in decode] == ["t100", "t101", "t102"]
    assert [d.ms for d in decode] == pytest.approx([22, 20, 20])
    candidates = decode[1].candidates
    assert [c.text for c in candidates] == ["t101", "t102", "t103", "t104", "t105"]
    assert [c.model_probability for c in candidates] == pytest.approx(
        [2.0**-i for i in range(1, 6)]
    )
    assert [c.probability for c in candidates] == [1, 0, 0, 0, 0]
    assert [c.chosen for c in candidates] == [True, False, False, False, False]
    assert not explain(_events(), "r", str, num_candidates=0).decode[0].candidates


def test_what_the_cache_saved() -> None:
    cache = _explain(_events()).cache
    assert (cache.num_positions, cache.num_computed) == (6, 6)
    assert cache.positions == Computations(6, 4 + 5 + 6)
    assert cache.dot_products == Computations(21, 10 + 15 + 21)
    assert cache.sliding_dot_products is None


def test_a_thousand_positions_from_one_token() -> None:
    events: list[Event] = [
        MODEL,
        replace(QUEUED, num_prompt_tokens=1),
        *(_token(i, i + 1, 5, 11.0 + i) for i in range(1000)),
        _finished(2000.0, 1000),
    ]
    cache = _explain(events).cache
    assert cache.positions == Computations(1000, 500_500)
    assert cache.positions.ratio == 500.5
    assert cache.dot_products.with_cache == 500_500
    assert cache.dot_products.without_cache == sum(i * (i + 1) // 2 for i in range(1, 1001))


def test_without_the_cache_every_step_computes_its_whole_input() -> None:
    events = [
        replace(event, chunks=(_chunk(0, event.chunks[0].start + 1),))
        if isinstance(event, StepExecuted) and event.step > 5
        else event
        for event in _events()
    ]
    told = _explain(events)
    assert [d.num_rows for d in told.decode] == [4, 5, 6]
    assert told.cache.num_computed == told.cache.positions.without_cache == 15


def test_the_timeline_adds_up() -> None:
    timeline = _explain(_events()).timeline
    assert timeline.ttft_ms == pytest.approx(22)  # encoding and queue included
    assert timeline.e2e_ms == pytest.approx(66)
    assert timeline.itl_ms == pytest.approx((20, 20))
    assert timeline.tpot_ms == pytest.approx((66 - 22) / 2)
    phases = {span.name: span.ms for span in timeline.phases}
    assert phases == pytest.approx({"encode": 2, "queue": 10, "prefill": 10, "decode": 44})
    shares = {span.name: span.ms for span in timeline.shares}
    assert shares == pytest.approx(
        {"encode": 2, "queue": 10, "forward": 24, "sampling": 3, "rest": 27}
    )
    assert sum(phases.values()) == pytest.approx(timeline.e2e_ms)
    assert sum(shares.values()) == pytest.approx(timeline.e2e_ms)


def test_strategy_and_end() -> None:
    told = _explain(_events())
    assert (told.strategy.words, told.strategy.seed) == ("greedy: the largest logit", 7)
    assert (told.finish_reason, told.stop_reason) == ("length", None)
    assert told.num_missing_tokens == 0


def test_a_preempted_sequence_computes_positions_again() -> None:
    events = _events()
    events[8:9] = [
        SequencePreempted(10.043, "r", 0, 5, "the pool was full"),
        PrefixMatched(10.044, "r", 0, 2, 0),
        _step(7, 10.050, _chunk(2, 4)),
    ]
    told = _explain(events)
    assert told.timeline.num_preemptions == 1
    assert told.cache.num_computed == 4 + 1 + 4
    assert told.prefill.num_cached_tokens == 0


def test_a_prefix_found_only_on_the_way_back_did_not_help_the_prefill() -> None:
    events = [*_events()[:4], PrefixMatched(10.0201, "r", 0, 3, 0), *_events()[4:]]
    assert _explain(events).prefill.num_cached_tokens == 0


def test_p02_where_the_prompt_came_from_adds_up() -> None:
    reused = PrefixMatched(10.005, "r", 0, 3, 0, num_disk_tokens=2, num_neighbour_tokens=1)
    events = [*_events()[:3], reused, _step(5, 10.012, _chunk(3, 1)), *_events()[4:]]
    prefill = _explain(events).prefill
    assert prefill.sources == SourcesPart(memory=0, disk=2, neighbour=1)
    assert prefill.num_cached_tokens + prefill.num_rows == 4
    assert prefill.miss is None


def test_a_match_that_the_passes_did_not_go_on_from_tells_no_sources() -> None:
    reused = PrefixMatched(10.005, "r", 0, 3, 0, num_disk_tokens=3)
    prefill = _explain([*_events()[:3], reused, *_events()[3:]]).prefill
    assert (prefill.num_cached_tokens, prefill.sources) == (0, SourcesPart())


def test_p03_a_miss_is_told_with_both_texts() -> None:
    miss = CacheMiss("different_text", 2, 2, (3, 4), (7, 8))
    events = [*_events()[:3], PrefixMatched(10.005, "r", 0, 0, 0, miss=miss), *_events()[3:]]
    told = _explain(events).prefill.miss
    assert told == ExplainedMiss("different_text", 2, 2, "t1t2", "t3t4", "t7t8")


def test_a_sample_that_shares_the_prompts_pass() -> None:
    events = [
        *_events(),
        PrefixMatched(10.02, "r", 1, 4, 0),
        replace(_token(5, 4, 300, 10.022), sample_index=1),
    ]
    told = _explain(events, 1)
    assert (told.prefill.num_cached_tokens, told.prefill.num_rows) == (4, 0)
    assert [(d.token_id, d.num_rows) for d in told.decode] == [(300, 0)]


def test_samples_are_told_apart() -> None:
    events = [*_events(), replace(_token(6, 5, 300, 10.050), sample_index=1)]
    assert [d.token_id for d in _explain(events, 1).decode] == [300]
    assert len(_explain(events).decode) == 3


def test_a_sequence_that_runs_or_never_ran() -> None:
    running = _explain(_events()[:7])
    assert running.finish_reason is None
    assert running.timeline.e2e_ms == pytest.approx(40)
    assert [step.what for step in running.kv.steps][-2:] == ["one token", "the full context"]
    aborted = _explain([MODEL, ENCODED, QUEUED, replace(_finished(10.5, 0), reason="abort")])
    assert aborted.timeline.ttft_ms is aborted.timeline.tpot_ms is None
    assert {s.name: s.ms for s in aborted.timeline.phases} == pytest.approx(
        {"encode": 2, "queue": 498, "prefill": 0, "decode": 0}, abs=1e-9
    )
    assert not aborted.prefill.passes
    assert not aborted.decode


def test_tokens_that_were_not_recorded_are_counted() -> None:
    events = [event for event in _events() if getattr(event, "token_id", 0) != 101]
    told = _explain(events)
    assert told.num_missing_tokens == 1
    assert told.cache.num_positions == 6


def test_events_of_nobody_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not tell of request 'r'"):
        _explain([MODEL])
    with pytest.raises(ConfigError, match="do not tell of the model's loading"):
        _explain(_events()[1:])


def test_it_becomes_json() -> None:
    told = json.loads(json.dumps(_explain(_events()).to_dict(), allow_nan=False))
    assert told["kv"]["steps"][3]["bytes"] == 23_040
    assert told["decode"][2]["candidates"][0]["chosen"] is True
