"""What happens to a request, as typed values: the only source of explanations and metrics.

Times are seconds of one monotonic clock. Not here: what is made of them (explain, recorder).
"""

from __future__ import annotations

from dataclasses import dataclass

from firstword.trace.misses import Miss


@dataclass(frozen=True)
class Event:
    """Something that happened at `time` (seconds, monotonic)."""

    time: float


@dataclass(frozen=True)
class ModelLoaded(Event):
    """What the explanation needs to know of the model and the machine's share given to it.

    Args:
        name: the model as the user named it.
        seconds: time to load it.
        num_layers: layers of the model.
        num_heads: query heads of a layer.
        num_kv_heads: key/value heads of a layer.
        head_dim: values in one head.
        kv_dtype: type of a stored value.
        kv_value_bytes: bytes of one stored value.
        kv_scale_bytes: bytes of the scale that the values of one token in one head share, or 0.
        kv_bytes_per_token: K/V bytes of one token over all layers.
        sliding_window: window of the layers that have one, else None.
        num_sliding_layers: layers with a window.
        max_model_len: context in tokens.
        kv_bytes_full_context: K/V bytes of one sequence that fills the context.
        kv_pool_bytes: bytes of the whole KV pool.
        weight_bytes: bytes of the weights in the file.
        backend: name of the ops backend.
        num_threads: threads it computes with.
    """

    name: str
    seconds: float
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    kv_dtype: str
    kv_value_bytes: int
    kv_bytes_per_token: int
    sliding_window: int | None
    num_sliding_layers: int
    max_model_len: int
    kv_bytes_full_context: int
    kv_pool_bytes: int
    weight_bytes: int
    backend: str
    num_threads: int
    kv_scale_bytes: int = 0


@dataclass(frozen=True)
class PromptEncoded(Event):
    """A prompt became tokens.

    Args:
        request_id: the request.
        seconds: time for the template and the tokenizer.
        token_ids: all tokens of the prompt.
        token_texts: their texts, for display.
        num_typed_tokens: tokens of what the user typed.
        num_template_tokens: tokens that the template or the model's BOS rule added.
        prompt_text: the rendered prompt.
    """

    request_id: str
    seconds: float
    token_ids: tuple[int, ...]
    token_texts: tuple[str, ...]
    num_typed_tokens: int
    num_template_tokens: int
    prompt_text: str


@dataclass(frozen=True)
class RequestQueued(Event):
    """A request entered the queue.

    Args:
        request_id: the request.
        num_prompt_tokens: length of its prompt.
        max_tokens: most tokens it may produce.
        n: samples asked for.
        strategy: the decoding strategy in words.
        seed: the seed in force.
        num_waiting: requests in front of it.
    """

    request_id: str
    num_prompt_tokens: int
    max_tokens: int
    n: int
    strategy: str
    seed: int
    num_waiting: int


@dataclass(frozen=True)
class PrefixMatched(Event):
    """Blocks of earlier requests were reused.

    Args:
        request_id: the request.
        sample_index: which of its sequences.
        num_cached_tokens: tokens that need not be computed again.
        num_copied_tokens: those of them copied out of the middle of a block.
        num_disk_tokens: those of them that were loaded from the disk.
        num_neighbour_tokens: those of them that another request computed while this one waited.
        miss: why there are no more, where there was more to be had.
    """

    request_id: str
    sample_index: int
    num_cached_tokens: int
    num_copied_tokens: int
    num_disk_tokens: int = 0
    num_neighbour_tokens: int = 0
    miss: Miss | None = None


@dataclass(frozen=True)
class SequencePreempted(Event):
    """A sequence gave its blocks back and will be recomputed.

    Args:
        request_id: the request.
        sample_index: which of its sequences.
        num_lost_tokens: positions whose K/V were given up.
        reason: why, in words.
    """

    request_id: str
    sample_index: int
    num_lost_tokens: int
    reason: str


@dataclass(frozen=True)
class ScheduledChunk:
    """A sequence's part of a step: positions start .. start + num_tokens - 1."""

    request_id: str
    sample_index: int
    start: int
    num_tokens: int


@dataclass(frozen=True)
class StepExecuted(Event):
    """One forward pass, for everyone in it; `time` is its end.

    Args:
        step: number of the step.
        start: when it began.
        chunks: who took part with how many positions.
        forward_ms: milliseconds in the model.
        sampling_ms: milliseconds from logits to tokens.
        flops: floating-point operations of the pass, by ops.cost.
        bytes_moved: bytes of weights and K/V read and written, by ops.cost.
        num_attended: q . k dot products per head, summed over layers.
        kv_bytes_in_use: bytes of the blocks in use after the step.
        predicted_ms: what the scheduler expected.
    """

    step: int
    start: float
    chunks: tuple[ScheduledChunk, ...]
    forward_ms: float
    sampling_ms: float
    flops: float
    bytes_moved: float
    num_attended: float
    kv_bytes_in_use: int
    predicted_ms: float


@dataclass(frozen=True)
class TokenCandidate:
    """A token in the running: the model's log probability, and what the strategy left of it."""

    token_id: int
    logprob: float
    probability: float


@dataclass(frozen=True)
class TokenSampled(Event):
    """A token was chosen.

    Args:
        request_id: the request.
        sample_index: which of its sequences.
        step: the step that produced its logits.
        position: the token's position in the sequence.
        token_id: the token.
        logprob: the model's log probability of it.
        probability: the probability the strategy gave it.
        num_survivors: tokens the strategy left to choose from.
        uniform: the random number drawn; None for a greedy choice.
        candidates: the most probable tokens, best first.
    """

    request_id: str
    sample_index: int
    step: int
    position: int
    token_id: int
    logprob: float
    probability: float
    num_survivors: int
    uniform: float | None
    candidates: tuple[TokenCandidate, ...]


@dataclass(frozen=True)
class TextEmitted(Event):
    """Text reached the reader."""

    request_id: str
    sample_index: int
    text: str


@dataclass(frozen=True)
class SequenceFinished(Event):
    """A sequence ended.

    Args:
        request_id: the request.
        sample_index: which of its sequences.
        reason: stop, length or abort.
        stop_reason: the stop string or token id that ended it, if one did.
        num_output_tokens: tokens it produced.
        kv_bytes: bytes of keys and values that it needed at its end, by kvcache.spec.kv_bytes;
            0 where that was not found out.
    """

    request_id: str
    sample_index: int
    reason: str
    stop_reason: str | int | None
    num_output_tokens: int
    kv_bytes: int = 0
