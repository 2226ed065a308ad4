"""What comes out: tokens of one step from the engine, and what a user receives of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from firstword.batch import Candidate
from firstword.errors import FirstwordError
from firstword.kvcache.sources import CacheMiss, PromptSources
from firstword.trace.misses import ExplainedMiss


class SequenceOutput(NamedTuple):
    """One new token of one sequence, as the engine sees it; a tuple, which travels fast.

    Args:
        request_id: the request.
        sample_index: which of its n samples.
        token_id: the token.
        logprob: the model's log probability of it.
        probability: what the strategy gave it.
        candidates: the most probable tokens, when asked for.
        finish_reason: "stop" or "length" when this token was the last.
        stop_reason: the token id that ended the sequence; None for the model's own end.
        error: why there is no token; the request is over then.
        ended_by_token: the token is an end token, which adds no text.
    """

    request_id: str
    sample_index: int
    token_id: int
    logprob: float
    candidates: tuple[Candidate, ...]
    finish_reason: str | None
    stop_reason: int | None
    error: FirstwordError | None = None
    probability: float = 1.0
    ended_by_token: bool = False


@dataclass(frozen=True)
class RequestMetrics:
    """What a request took. Times are seconds.

    Args:
        ttft: first token - arrival, queue included.
        e2e: last token - arrival.
        num_cached_tokens: prompt tokens whose K/V were reused.
        num_computed_tokens: positions computed in forward passes, over all samples.
        num_preemptions: how often one of its sequences was preempted.
        kv_bytes: bytes of keys and values at the end, over all samples.
        queue_seconds: from arrival to the first step it took part in; None if there was none.
        sources: where the reused tokens came from.
        miss: why no more were reused, where there was more to be had.
    """

    ttft: float | None
    e2e: float
    num_cached_tokens: int
    num_computed_tokens: int
    num_preemptions: int
    kv_bytes: int
    queue_seconds: float | None = None
    sources: PromptSources = field(default_factory=PromptSources)
    miss: CacheMiss | None = None

    @property
    def prefill_seconds(self) -> float | None:
        """From the first step to the first token."""
        if self.ttft is None or self.queue_seconds is None:
            return None
        return self.ttft - self.queue_seconds

    def tokens_per_second(self, num_output_tokens: int) -> float | None:
        """Decoding speed: tokens after the first over the time after the first."""
        if self.ttft is None or num_output_tokens < 2 or self.e2e <= self.ttft:
            return None
        return (num_output_tokens - 1) / (self.e2e - self.ttft)


@dataclass(frozen=True)
class TokenLogprob:
    """A token with the model's log probability, and the candidates beside it.

    Args:
        token_id: the token.
        logprob: the model's.
        candidates: the most probable tokens, best first.
        probability: what the strategy gave it.
    """

    token_id: int
    logprob: float
    candidates: tuple[Candidate, ...]
    probability: float = 1.0


@dataclass(frozen=True)
class PromptProgress:
    """How far the reading of a prompt is.

    Args:
        num_prompt_tokens: tokens of the prompt.
        sources: of these, tokens whose K/V were there already, by where they came from.
        num_computed_tokens: positions that need no more work, cached ones included.
        num_ahead: requests in line before it; 0 once it runs.
        seconds: since it arrived.
    """

    num_prompt_tokens: int
    sources: PromptSources
    num_computed_tokens: int
    num_ahead: int
    seconds: float

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt whose K/V were there already."""
        return self.sources.num_cached


@dataclass(frozen=True)
class CompletionOutput:
    """One sample of a request.

    Args:
        index: which of the n samples.
        text: what was produced, without the stop string that ended it.
        token_ids: the tokens, the end token included.
        finish_reason: "stop", "length" or "abort".
        stop_reason: the stop string or token id that ended it, None for the model's own end.
        logprobs: one entry per token, when asked for.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None


@dataclass(frozen=True)
class RequestOutput:
    """All that a request gave.

    Args:
        request_id: the request.
        prompt: the prompt as text, template included; None when it came as token ids.
        prompt_token_ids: the prompt as tokens.
        outputs: n samples.
        seed: the seed in force: the same request with it gives the same tokens.
        metrics: what it took.
        cache_miss: why no more of the prompt was reused, where there was more to be had;
            `cache_miss.in_words()` tells it.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    seed: int
    metrics: RequestMetrics
    cache_miss: ExplainedMiss | None = None

    @property
    def text(self) -> str:
        """The text of the first sample."""
        return self.outputs[0].text

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return len(self.prompt_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Tokens produced, over all samples."""
        return sum(len(output.token_ids) for output in self.outputs)


@dataclass(frozen=True)
class TextDelta:
    """A piece of a streamed answer; the pieces of one sample concatenate to its text.

    Args:
        request_id: the request.
        index: which of the n samples.
        text: the new text, whole characters only; may be empty.
        token_ids: the tokens that arrived with it.
        finish_reason: set on a sample's last piece.
        output: the whole request, on the very last piece.
        error: why the request could not go on; nothing follows then.
        logprobs: one entry for each of `token_ids`, when asked for.
        progress: the prompt is still read; such a piece has no text and no tokens.
        stop_reason: with `finish_reason`, the stop string or token id that ended the sample.
    """

    request_id: str
    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str | None = None
    output: RequestOutput | None = None
    error: FirstwordError | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    progress: PromptProgress | None = None
    stop_reason: str | int | None = None
