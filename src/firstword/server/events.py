"""What happens to one request, as every API family is told it.

Not here: the words of any API (openai, anthropic), and how the events come about (answer, chat).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from firstword.engine.outputs import PromptProgress, RequestOutput, TokenLogprob
from firstword.kvcache.sources import PromptSources
from firstword.sampling.params import SamplingParams
from firstword.text.pieces import Piece
from firstword.trace.misses import ExplainedMiss

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class Usage:
    """Tokens of a request, right at any moment of it.

    Args:
        prompt: of the prompt, cached ones included.
        sources: of the prompt, those whose K/V were there already, by where they came from.
        completion: produced, over all samples, reasoning and end tokens included.
        reasoning: produced as reasoning.
        preemptions: how often the request lost its KV blocks and began again; known at the end.
        miss: why no more of the prompt was reused, where there was more to be had; of several
            prompts, of the first that has one; known at the end.
    """

    prompt: int = 0
    sources: PromptSources = field(default_factory=PromptSources)
    completion: int = 0
    reasoning: int = 0
    preemptions: int = 0
    miss: ExplainedMiss | None = None

    @property
    def cached(self) -> int:
        """Tokens of the prompt whose K/V were there already."""
        return self.sources.num_cached

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.sources.plus(other.sources),
            self.completion + other.completion,
            self.reasoning + other.reasoning,
            self.preemptions + other.preemptions,
            self.miss or other.miss,
        )


@dataclass(frozen=True)
class Progress:
    """The prompt is still waiting or being read."""

    progress: PromptProgress

    def in_words(self) -> str:
        """One line for who watches a stream."""
        told = self.progress
        if told.num_ahead:
            return f"queued behind {told.num_ahead}"
        read = f"prefill {told.num_computed_tokens}/{told.num_prompt_tokens}"
        return f"{read} cached {told.num_cached_tokens}"


@dataclass(frozen=True)
class Started:
    """The prompt has been read; comes once, before the first Delta.

    Args:
        usage: of the prompt; nothing was produced yet.
        params: in force: the request's, with what its tools and its reasoning need.
    """

    usage: Usage
    params: SamplingParams


@dataclass(frozen=True)
class Delta:
    """New pieces of one sample.

    Args:
        index: which of the n samples.
        pieces: content, reasoning and tool calls in order; may be empty.
        logprobs: of the tokens that came with it, when asked for.
        usage: of the request so far.
    """

    index: int
    pieces: tuple[Piece, ...]
    logprobs: tuple[TokenLogprob, ...]
    usage: Usage


@dataclass(frozen=True)
class SampleEnd:
    """One sample has ended.

    Args:
        index: which of the n samples.
        finish_reason: why; "length" beats "tool_calls", since a cut call is no whole one.
        stop_string: the stop string that ended it, None for any other end.
        usage: of the request so far.
    """

    index: int
    finish_reason: FinishReason
    stop_string: str | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Done:
    """The request has ended; nothing follows.

    Args:
        output: all it gave.
        usage: its tokens.
        params: as in `Started`.
    """

    output: RequestOutput
    usage: Usage
    params: SamplingParams


ChatEvent = Progress | Started | Delta | SampleEnd | Done
