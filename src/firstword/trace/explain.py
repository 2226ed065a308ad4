"""Makes an explanation of one sequence from its events, and from nothing else.

Every number is an event's own or follows from one by the arithmetic written here. Not here:
printing (the command line).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from firstword.errors import ConfigError
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
    TokenCandidate,
    TokenSampled,
)
from firstword.trace.explanation import (
    ArithmeticStep,
    CachePart,
    CandidatePart,
    Computations,
    DecodePart,
    Explanation,
    KVPart,
    PassPart,
    PrefillPart,
    PromptPart,
    PromptToken,
    SourcesPart,
    Span,
    StrategyPart,
    TimelinePart,
)
from firstword.trace.misses import ExplainedMiss, explained

NUM_CANDIDATES = 5
"""Candidates shown for each token."""

EventType = TypeVar("EventType", bound=Event)


@dataclass(frozen=True)
class _Story:
    """The events of one sequence, sorted out. `steps` pairs a pass with the sequence's part."""

    model: ModelLoaded
    queued: RequestQueued
    encoded: PromptEncoded | None
    matches: tuple[PrefixMatched, ...]
    steps: tuple[tuple[StepExecuted, ScheduledChunk], ...]
    tokens: tuple[TokenSampled, ...]
    num_preemptions: int
    finished: SequenceFinished | None

    @property
    def num_output_tokens(self) -> int:
        return self.finished.num_output_tokens if self.finished else len(self.tokens)

    @property
    def num_positions(self) -> int:
        """Positions fed to the model: the last token of the output never is."""
        return self.queued.num_prompt_tokens + max(self.num_output_tokens - 1, 0)

    @property
    def arrival(self) -> float:
        """When the prompt came, before it was encoded."""
        return self.encoded.time - self.encoded.seconds if self.encoded else self.queued.time

    @property
    def end(self) -> float:
        """When the sequence ended, or the last that is known of it."""
        if self.finished:
            return self.finished.time
        times = [self.queued.time, *(t.time for t in self.tokens), *(s.time for s, _ in self.steps)]
        return max(times)

    @property
    def prefill(self) -> tuple[tuple[StepExecuted, ScheduledChunk], ...]:
        """The passes up to the one that gave the first token."""
        last = self.tokens[0].step if self.tokens else math.inf
        return tuple((step, chunk) for step, chunk in self.steps if step.step <= last)


def explain(
    events: Sequence[Event],
    request_id: str,
    token_text: Callable[[int], str],
    sample_index: int = 0,
    num_candidates: int = NUM_CANDIDATES,
) -> Explanation:
    """Explain what happened to one sequence.

    Args:
        events: among them the model's loading and those of the request, in order of time.
        request_id: the request.
        token_text: text of a token id, for display.
        sample_index: which of the request's sequences.
        num_candidates: most candidates to show for each token, at least 0.

    Returns:
        The explanation; of a sequence that still runs, as far as it goes.

    Raises:
        ConfigError: the events do not tell of the model or of the request.
    """
    story = _sort_out(events, request_id, sample_index)
    return Explanation(
        request_id=request_id,
        sample_index=sample_index,
        model=story.model.name,
        backend=story.model.backend,
        num_threads=story.model.num_threads,
        load_ms=story.model.seconds * 1e3,
        prompt=_prompt(story),
        prefill=_prefill(story, token_text),
        kv=_kv(story),
        decode=_decode(story, token_text, num_candidates),
        cache=_cache(story),
        strategy=StrategyPart(story.queued.strategy, story.queued.seed, story.queued.n),
        timeline=_timeline(story),
        finish_reason=story.finished.reason if story.finished else None,
        stop_reason=story.finished.stop_reason if story.finished else None,
        num_missing_tokens=story.num_output_tokens - len(story.tokens),
    )


def _sort_out(events: Sequence[Event], request_id: str, sample_index: int) -> _Story:
    def of_kind(kind: type[EventType]) -> list[EventType]:
        """Events of a kind, without those that name another request or sample."""
        return [
            event
            for event in events
            if isinstance(event, kind)
            and getattr(event, "request_id", request_id) == request_id
            and getattr(event, "sample_index", sample_index) == sample_index
        ]

    models, queued = of_kind(ModelLoaded), of_kind(RequestQueued)
    if not models or not queued:
        missing = "the model's loading" if not models else f"request {request_id!r}"
        raise ConfigError(
            f"the events do not tell of {missing}: give all that the recorder has for the request"
        )
    steps = tuple(
        (step, chunk)
        for step in of_kind(StepExecuted)
        for chunk in step.chunks
        if (chunk.request_id, chunk.sample_index) == (request_id, sample_index)
    )
    return _Story(
        model=models[-1],
        queued=queued[0],
        encoded=next(iter(of_kind(PromptEncoded)), None),
        matches=tuple(of_kind(PrefixMatched)),
        steps=steps,
        tokens=tuple(of_kind(TokenSampled)),
        num_preemptions=len(of_kind(SequencePreempted)),
        finished=next(iter(of_kind(SequenceFinished)), None),
    )


def _prompt(story: _Story) -> PromptPart:
    encoded = story.encoded
    if encoded is None:  # token ids were given
        num_tokens = story.queued.num_prompt_tokens
        return PromptPart("", (), num_tokens, num_tokens, 0, 0.0)
    pairs = zip(encoded.token_ids, encoded.token_texts, strict=True)
    return PromptPart(
        text=encoded.prompt_text,
        tokens=tuple(PromptToken(i, token, text) for i, (token, text) in enumerate(pairs)),
        num_tokens=len(encoded.token_ids),
        num_typed_tokens=encoded.num_typed_tokens,
        num_template_tokens=encoded.num_template_tokens,
        encode_ms=encoded.seconds * 1e3,
    )


def _prefill(story: _Story, token_text: Callable[[int], str]) -> PrefillPart:
    passes = tuple(_pass(step, chunk) for step, chunk in story.prefill)
    num_cached = _num_cached_tokens(story)
    # The one that the passes went on from, where there are several.
    matched = next((m for m in story.matches if m.num_cached_tokens == num_cached), None)
    return PrefillPart(
        num_cached_tokens=num_cached,
        sources=_sources(num_cached, matched),
        miss=_miss(story, matched, token_text),
        num_rows=sum(part.num_rows for part in passes),
        flops=sum(part.flops for part in passes),
        ms=_milliseconds(_prefill_start(story), _first_token_time(story)),
        passes=passes,
    )


def _num_cached_tokens(story: _Story) -> int:
    # Not the match's own number: a preempted sequence may have found its prefix twice.
    if story.prefill:
        return story.prefill[0][1].start
    return story.matches[0].num_cached_tokens if story.matches else 0


def _sources(num_cached: int, matched: PrefixMatched | None) -> SourcesPart:
    if matched is None:
        return SourcesPart(memory=num_cached)
    disk, neighbour = matched.num_disk_tokens, matched.num_neighbour_tokens
    return SourcesPart(num_cached - disk - neighbour, disk, neighbour)


def _miss(
    story: _Story, matched: PrefixMatched | None, token_text: Callable[[int], str]
) -> ExplainedMiss | None:
    if matched is None or matched.miss is None:
        return None
    prompt = story.encoded.token_ids if story.encoded else ()
    return explained(matched.miss, prompt, lambda ids: "".join(map(token_text, ids)))


def _pass(step: StepExecuted, chunk: ScheduledChunk) -> PassPart:
    all_rows = sum(other.num_tokens for other in step.chunks)
    return PassPart(
        step=step.step,
        start=chunk.start,
        num_rows=chunk.num_tokens,
        num_other_rows=all_rows - chunk.num_tokens,
        flops=step.flops * chunk.num_tokens / all_rows,
        ms=step.forward_ms + step.sampling_ms,
    )


def _kv(story: _Story) -> KVPart:
    model = story.model
    head = 2 * (model.head_dim * model.kv_value_bytes + model.kv_scale_bytes)
    values = f"{model.head_dim} values x {_bytes(model.kv_value_bytes)}"
    if model.kv_scale_bytes:
        values = f"({values} + a scale of {_bytes(model.kv_scale_bytes)})"
    layer = model.num_kv_heads * head
    steps = [
        ArithmeticStep("one value", f"a {model.kv_dtype} number", model.kv_value_bytes),
        ArithmeticStep(
            "one token in one head of one layer",
            f"a key and a value: 2 x {values}",
            head,
        ),
        ArithmeticStep(
            "one token in one layer",
            f"{model.num_kv_heads} key/value heads x {head:,} bytes",
            layer,
        ),
        ArithmeticStep(
            "one token", f"{model.num_layers} layers x {layer:,} bytes", model.kv_bytes_per_token
        ),
    ]
    if story.finished and story.finished.kv_bytes:
        formula = _tokens_formula(model, layer, story.num_positions)
        steps.append(ArithmeticStep("this sequence", formula, story.finished.kv_bytes))
    formula = _tokens_formula(model, layer, model.max_model_len)
    steps.append(ArithmeticStep("the full context", formula, model.kv_bytes_full_context))
    ratio = model.num_heads / model.num_kv_heads
    return KVPart(
        steps=tuple(steps),
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        grouping_ratio=ratio,
        dtype=model.kv_dtype,
        bytes_per_token=model.kv_bytes_per_token,
        bytes_per_token_float16=model.num_layers * model.num_kv_heads * model.head_dim * 4,
        bytes_per_token_ungrouped=round(model.kv_bytes_per_token * ratio),
        num_tokens=story.num_positions,
    )


def _bytes(number: int) -> str:
    return "1 byte" if number == 1 else f"{number} bytes"


def _tokens_formula(model: ModelLoaded, layer_bytes: int, num_tokens: int) -> str:
    window, num_sliding = model.sliding_window, model.num_sliding_layers
    if window is None or not num_sliding:
        return f"{num_tokens:,} tokens x {model.kv_bytes_per_token:,} bytes"
    sliding = (
        f"{num_sliding} layers x {min(num_tokens, window):,} tokens x {layer_bytes:,} bytes "
        f"(they keep the last {window:,})"
    )
    num_full = model.num_layers - num_sliding
    full = f"{num_full} layers x {num_tokens:,} tokens x {layer_bytes:,} bytes"
    return f"{full} + {sliding}" if num_full else sliding


def _decode(
    story: _Story, token_text: Callable[[int], str], num_candidates: int
) -> tuple[DecodePart, ...]:
    rows = {step.step: chunk.num_tokens for step, chunk in story.steps}
    parts = []
    before = story.arrival
    for index, token in enumerate(story.tokens):
        shown = token.candidates[:num_candidates]
        parts.append(
            DecodePart(
                index=index,
                step=token.step,
                num_input_tokens=token.position,
                num_rows=rows.get(token.step, 0),
                token_id=token.token_id,
                text=token_text(token.token_id),
                logprob=token.logprob,
                probability=token.probability,
                num_survivors=token.num_survivors,
                uniform=token.uniform,
                ms=_milliseconds(before, token.time),
                candidates=tuple(_candidate(c, token.token_id, token_text) for c in shown),
            )
        )
        before = token.time
    return tuple(parts)


def _candidate(
    candidate: TokenCandidate, chosen: int, token_text: Callable[[int], str]
) -> CandidatePart:
    return CandidatePart(
        token_id=candidate.token_id,
        text=token_text(candidate.token_id),
        model_probability=math.exp(candidate.logprob),
        probability=candidate.probability,
        chosen=candidate.token_id == chosen,
    )


def _cache(story: _Story) -> CachePart:
    first, last = story.queued.num_prompt_tokens, story.num_positions
    model = story.model
    sliding = None
    if model.sliding_window is not None and model.num_sliding_layers:
        sliding = _dot_products(first, last, model.sliding_window)
    return CachePart(
        num_positions=last,
        num_computed=sum(chunk.num_tokens for _, chunk in story.steps),
        positions=Computations(last, sum(range(first, last + 1))),
        dot_products=_dot_products(first, last, last),
        sliding_dot_products=sliding,
    )


def _dot_products(first: int, last: int, window: int) -> Computations:
    """q . k products of one head in one layer, for passes over inputs of `first` .. `last` tokens.

    A query at the i-th token attends to min(i, window) keys. With the cache each query is computed
    once; without it, each pass computes those of its whole input again.
    """
    once, again = 0, 0
    for length in range(1, last + 1):
        once += min(length, window)
        if length >= first:
            again += once
    return Computations(once, again)


def _timeline(story: _Story) -> TimelinePart:
    times = [token.time for token in story.tokens]
    e2e = _milliseconds(story.arrival, story.end)
    ttft = _milliseconds(story.arrival, times[0]) if times else None
    encode = story.encoded.seconds * 1e3 if story.encoded else 0.0
    queue = _milliseconds(story.arrival, _prefill_start(story)) - encode
    prefill = _milliseconds(_prefill_start(story), _first_token_time(story))
    forward = sum(step.forward_ms for step, _ in story.steps)
    sampling = sum(step.sampling_ms for step, _ in story.steps)
    return TimelinePart(
        e2e_ms=e2e,
        ttft_ms=ttft,
        itl_ms=tuple(_milliseconds(a, b) for a, b in pairwise(times)),
        tpot_ms=None if ttft is None or len(times) < 2 else (e2e - ttft) / (len(times) - 1),
        phases=(
            Span("encode", encode),
            Span("queue", queue),
            Span("prefill", prefill),
            Span("decode", e2e - encode - queue - prefill),
        ),
        shares=(
            Span("encode", encode),
            Span("queue", queue),
            Span("forward", forward),
            Span("sampling", sampling),
            Span("rest", e2e - encode - queue - forward - sampling),
        ),
        num_preemptions=story.num_preemptions,
    )


def _prefill_start(story: _Story) -> float:
    return story.prefill[0][0].start if story.prefill else _first_token_time(story)


def _first_token_time(story: _Story) -> float:
    return story.tokens[0].time if story.tokens else story.end


def _milliseconds(start: float, end: float) -> float:
    return (end - start) * 1e3
