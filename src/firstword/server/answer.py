"""One request's answer while it comes: the model's deltas in, neutral events out.

Not here: who asks for it (chat), how reasoning and calls are recognised (text.tools).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from firstword.engine.outputs import RequestOutput, TextDelta
from firstword.kvcache.sources import PromptSources
from firstword.processor.prompt import EncodedPrompt
from firstword.sampling.params import SamplingParams
from firstword.server.events import (
    ChatEvent,
    Delta,
    Done,
    FinishReason,
    Progress,
    SampleEnd,
    Started,
    Usage,
)
from firstword.text.pieces import ContentPiece, Piece, ToolCallStart
from firstword.text.tools.answer import AnswerParser


@dataclass
class Sample:
    """One sample so far.

    Args:
        parser: tells content, reasoning and calls apart; None takes all as content.
        has_calls: a tool call began.
    """

    parser: AnswerParser | None
    has_calls: bool = False

    def push(self, delta: TextDelta) -> tuple[Piece, ...]:
        """The pieces that became certain."""
        if self.parser is None:
            return (ContentPiece(delta.text),) if delta.text else ()
        pieces = self.parser.push(delta.text, len(delta.token_ids))
        if delta.finish_reason is not None:
            pieces = [*pieces, *self.parser.finish()]
        if not self.has_calls:
            self.has_calls = any(isinstance(piece, ToolCallStart) for piece in pieces)
        return tuple(pieces)

    @property
    def num_reasoning_tokens(self) -> int:
        """Tokens so far that are reasoning."""
        return 0 if self.parser is None else self.parser.num_reasoning_tokens


class Answer:
    """One request's answer so far: deltas in, events out.

    Args:
        prompt: of the request.
        params: in force.
        new_parser: makes a parser for each sample, None for content alone.
    """

    def __init__(
        self,
        prompt: EncodedPrompt,
        params: SamplingParams,
        new_parser: Callable[[], AnswerParser | None],
    ) -> None:
        self.params = params
        self.output: RequestOutput | None = None
        self._num_prompt = len(prompt.token_ids)
        self._samples = [Sample(new_parser()) for _ in range(params.n)]
        self._started = False
        self._sources = PromptSources()
        self._completion = 0

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        reasoning = sum(sample.num_reasoning_tokens for sample in self._samples)
        usage = Usage(self._num_prompt, self._sources, self._completion, reasoning)
        if self.output is None:
            return usage
        preemptions = self.output.metrics.num_preemptions
        return replace(usage, preemptions=preemptions, miss=self.output.cache_miss)

    def push(self, delta: TextDelta) -> Iterator[ChatEvent]:
        """The events of one delta.

        Raises:
            FirstwordError: the delta's own.
        """
        if delta.error is not None:
            raise delta.error
        if delta.progress is not None:
            self._sources = delta.progress.sources
            yield Progress(delta.progress)
            return
        if delta.output is not None:
            self.output = delta.output
            self._sources = delta.output.metrics.sources
        if not self._started:
            self._started = True
            yield Started(Usage(self._num_prompt, self._sources), self.params)
        yield from self._advance(delta)
        if self.output is not None:
            yield Done(self.output, self.usage, self.params)

    def _advance(self, delta: TextDelta) -> Iterator[ChatEvent]:
        sample = self._samples[delta.index]
        pieces = sample.push(delta)
        self._completion += len(delta.token_ids)
        if pieces or delta.logprobs:
            yield Delta(delta.index, pieces, delta.logprobs, self.usage)
        if delta.finish_reason is not None:
            reason: FinishReason = "length" if delta.finish_reason == "length" else "stop"
            if reason == "stop" and sample.has_calls:
                reason = "tool_calls"
            stopped_by = delta.stop_reason
            stop_string = stopped_by if isinstance(stopped_by, str) else None
            yield SampleEnd(delta.index, reason, stop_string, self.usage)
