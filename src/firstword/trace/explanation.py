"""An explanation as values, in the order in which it is told; any value can become JSON.

Times are in milliseconds, sizes in bytes. Not here: how it is made from events (explain) and
how it is printed (the command line).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from firstword.trace.misses import ExplainedMiss


@dataclass(frozen=True)
class PromptToken:
    """A token of the prompt: where it stands, its id, its text."""

    position: int
    token_id: int
    text: str


@dataclass(frozen=True)
class PromptPart:
    """What the model is given.

    Args:
        text: the rendered prompt; empty when token ids were given instead of text.
        tokens: its tokens; empty when they were not recorded.
        num_tokens: how many there are.
        num_typed_tokens: those of what the user typed.
        num_template_tokens: those that the template or the model's BOS rule added.
        encode_ms: time for the template and the tokenizer.
    """

    text: str
    tokens: tuple[PromptToken, ...]
    num_tokens: int
    num_typed_tokens: int
    num_template_tokens: int
    encode_ms: float


@dataclass(frozen=True)
class PassPart:
    """The sequence's part of one forward pass.

    Args:
        step: number of the step.
        start: first position computed.
        num_rows: positions computed, the rows that enter the model.
        num_other_rows: rows of other sequences in the same pass.
        flops: floating-point operations, an equal share for each row of the pass.
        ms: time of the whole pass, forward and sampling.
    """

    step: int
    start: int
    num_rows: int
    num_other_rows: int
    flops: float
    ms: float


@dataclass(frozen=True)
class SourcesPart:
    """Where the prompt tokens that were not computed came from.

    Args:
        memory: blocks that were in the KV pool.
        disk: blocks that were loaded.
        neighbour: blocks that another request computed while this one waited for them.
    """

    memory: int = 0
    disk: int = 0
    neighbour: int = 0


@dataclass(frozen=True)
class PrefillPart:
    """How the prompt was read, up to the first token.

    Args:
        num_cached_tokens: prompt tokens whose keys and values were there before.
        sources: where they came from.
        miss: why they are no more, where there was more to be had.
        num_rows: rows computed, over all passes.
        flops: floating-point operations, over all passes.
        ms: from the start of the first pass to the first token, waiting between passes included.
        passes: one, unless the prompt was read in chunks.
    """

    num_cached_tokens: int
    sources: SourcesPart
    miss: ExplainedMiss | None
    num_rows: int
    flops: float
    ms: float
    passes: tuple[PassPart, ...]


@dataclass(frozen=True)
class ArithmeticStep:
    """One line of a calculation: what, how, and what comes out, in bytes."""

    what: str
    formula: str
    bytes: int


@dataclass(frozen=True)
class KVPart:
    """What keys and values cost.

    Args:
        steps: from one value to the full context, each built on the one before.
        num_heads: query heads of a layer.
        num_kv_heads: key/value heads of a layer.
        grouping_ratio: query heads that share one key/value head.
        dtype: type of a stored value.
        bytes_per_token: keys and values of one token.
        bytes_per_token_float16: the same if they were float16.
        bytes_per_token_ungrouped: the same if every query head had its own.
        num_tokens: positions of this sequence whose keys and values were stored.
    """

    steps: tuple[ArithmeticStep, ...]
    num_heads: int
    num_kv_heads: int
    grouping_ratio: float
    dtype: str
    bytes_per_token: int
    bytes_per_token_float16: int
    bytes_per_token_ungrouped: int
    num_tokens: int


@dataclass(frozen=True)
class CandidatePart:
    """A token in the running.

    Args:
        token_id: the token.
        text: its text.
        model_probability: the model's own, before the strategy.
        probability: what the strategy left: 0 when it was cut.
        chosen: it is the one that was taken.
    """

    token_id: int
    text: str
    model_probability: float
    probability: float
    chosen: bool


@dataclass(frozen=True)
class DecodePart:
    """How one token of the output came about.

    Args:
        index: 0 for the first token, which ends the prefill.
        step: number of the step.
        num_input_tokens: tokens that it was predicted from: one more each time.
        num_rows: rows computed for it: 1 with the cache, all of the input without; 0 where
            another sample of the request computed them.
        token_id: the token.
        text: its text.
        logprob: the model's log probability of it.
        probability: the probability the strategy gave it.
        num_survivors: tokens the strategy left to choose from.
        uniform: the random number drawn; None for a greedy choice.
        ms: time since the token before (ITL); for the first, since arrival (TTFT).
        candidates: the most probable tokens, best first.
    """

    index: int
    step: int
    num_input_tokens: int
    num_rows: int
    token_id: int
    text: str
    logprob: float
    probability: float
    num_survivors: int
    uniform: float | None
    ms: float
    candidates: tuple[CandidatePart, ...]


@dataclass(frozen=True)
class Computations:
    """A number of computations with the KV cache and without it."""

    with_cache: int
    without_cache: int

    @property
    def ratio(self) -> float:
        """How many times more without; 1 where there was nothing to compute."""
        return self.without_cache / self.with_cache if self.with_cache else 1.0


@dataclass(frozen=True)
class CachePart:
    """What the KV cache saved.

    Args:
        num_positions: positions fed to the model: all tokens but the last, which is never fed.
        num_computed: positions really computed; less than that when an earlier request had left
            some, more when the cache was off or a preempted sequence was computed again.
        positions: one position in one forward pass counts 1.
        dot_products: q . k products of one head in one layer that attends to all positions.
        sliding_dot_products: the same in a layer with a window; None when there is none.
    """

    num_positions: int
    num_computed: int
    positions: Computations
    dot_products: Computations
    sliding_dot_products: Computations | None


@dataclass(frozen=True)
class StrategyPart:
    """What chose: the strategy in words, the seed in force, and how many samples were wanted."""

    words: str
    seed: int
    n: int


@dataclass(frozen=True)
class Span:
    """A stretch of time, or a share of it."""

    name: str
    ms: float


@dataclass(frozen=True)
class TimelinePart:
    """Where the time went. Both divisions add up to the total.

    Args:
        e2e_ms: from arrival to the end.
        ttft_ms: from arrival to the first token, the queue included; None without a token.
        itl_ms: each gap between tokens.
        tpot_ms: (E2E - TTFT) / (tokens - 1); None with fewer than two tokens.
        phases: one after the other: encode, queue, prefill, decode.
        shares: by kind of work: encode, queue, forward, sampling, rest.
        num_preemptions: how often the sequence gave up its blocks.
    """

    e2e_ms: float
    ttft_ms: float | None
    itl_ms: tuple[float, ...]
    tpot_ms: float | None
    phases: tuple[Span, ...]
    shares: tuple[Span, ...]
    num_preemptions: int


@dataclass(frozen=True)
class Explanation:
    """What happened to one sequence, from the prompt to its end.

    Args:
        request_id: the request.
        sample_index: which of its sequences.
        model: the model as the user named it.
        backend: name of the ops backend.
        num_threads: threads it computed with.
        load_ms: time to load the model.
        prompt: the tokens.
        prefill: how they were read.
        kv: what keys and values cost.
        decode: the tokens of the output, one by one.
        cache: what the KV cache saved.
        strategy: what chose the tokens.
        timeline: where the time went.
        finish_reason: stop, length or abort; None while it runs.
        stop_reason: the stop string or token id that ended it, if one did.
        num_missing_tokens: tokens of the output that were not recorded.
    """

    request_id: str
    sample_index: int
    model: str
    backend: str
    num_threads: int
    load_ms: float
    prompt: PromptPart
    prefill: PrefillPart
    kv: KVPart
    decode: tuple[DecodePart, ...]
    cache: CachePart
    strategy: StrategyPart
    timeline: TimelinePart
    finish_reason: str | None
    stop_reason: str | int | None
    num_missing_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """The same as dictionaries, tuples and plain values, for JSON."""
        return asdict(self)
