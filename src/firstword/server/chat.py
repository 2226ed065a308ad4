"""One answer of the model as neutral events: what every API family streams and counts from.

Not here: the words of any API (openai, anthropic), HTTP, and the parsing of tool calls and
reasoning themselves (text.tools, text.reasoning).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from firstword.engine.engine import RequestOptions
from firstword.engine.outputs import PromptProgress, RequestOutput, TextDelta, TokenLogprob
from firstword.errors import ConfigError
from firstword.processor.prompt import EncodedPrompt
from firstword.sampling.params import Grammar, SamplingParams
from firstword.text.chat_template import ChatTemplate
from firstword.text.reasoning import reasoning_format
from firstword.text.tokenizer import Tokenizer
from firstword.text.tools import (
    AnswerParser,
    ContentPiece,
    Piece,
    ReasoningPiece,
    ToolCallStart,
    ToolChoice,
    ToolSpec,
    tool_format,
)

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True)
class ChatRequest:
    """A conversation to be answered.

    Args:
        request_id: unique among the requests in flight.
        messages: as chat templates read them: contents are strings, arguments of tool calls are
            mappings.
        params: how tokens are chosen; its `grammar` holds the answer to a form.
        tools: functions that the model may call.
        tool_choice: whether it may, must not, must, or which one.
        parallel_tool_calls: whether a held answer may hold more than one call.
        variables: further variables of the chat template, such as enable_thinking.
        separate_reasoning: tell reasoning from content; else all of it is content.
        options: the request's place among the others.
    """

    request_id: str
    messages: list[dict[str, object]]
    params: SamplingParams
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    variables: Mapping[str, object] = field(default_factory=dict)
    separate_reasoning: bool = True
    options: RequestOptions = field(default_factory=RequestOptions)

    @property
    def offered_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is told of: none where it must not call any."""
        return () if self.tool_choice == "none" else self.tools


@dataclass(frozen=True)
class TextRequest:
    """A raw prompt to be continued; its answer is content alone.

    Args:
        request_id: unique among the requests in flight.
        prompt: text, in which control strings are control tokens, or token ids.
        params: how tokens are chosen.
        options: the request's place among the others.
    """

    request_id: str
    prompt: str | Sequence[int]
    params: SamplingParams
    options: RequestOptions = field(default_factory=RequestOptions)


AnyRequest = ChatRequest | TextRequest


@dataclass(frozen=True)
class Usage:
    """Tokens of a request, right at any moment of it.

    Args:
        prompt: of the prompt, cached ones included.
        cached: of the prompt, those whose K/V were there already.
        completion: produced, over all samples, reasoning and end tokens included.
        reasoning: produced as reasoning.
    """

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.cached + other.cached,
            self.completion + other.completion,
            self.reasoning + other.reasoning,
        )


@dataclass(frozen=True)
class Progress:
    """The prompt is still waiting or being read."""

    progress: PromptProgress


@dataclass(frozen=True)
class Started:
    """The prompt has been read; comes once, before the first Delta. `usage` has no completion."""

    usage: Usage


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
    """

    index: int
    finish_reason: FinishReason
    stop_string: str | None = None


@dataclass(frozen=True)
class Done:
    """The request has ended; nothing follows."""

    output: RequestOutput
    usage: Usage


ChatEvent = Progress | Started | Delta | SampleEnd | Done


@dataclass(frozen=True)
class Ended:
    """How a request ended, for logs and counters.

    Args:
        request: as it was asked.
        usage: its tokens, also when it was aborted.
        output: all it gave; None when it did not come to its end.
        error: what ended it early: a FirstwordError, CancelledError or GeneratorExit when the
            client went; None when it came to its end.
    """

    request: AnyRequest
    usage: Usage
    output: RequestOutput | None
    error: BaseException | None


class ServedLLM(Protocol):
    """What the server needs of an `AsyncLLM`."""

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    max_model_len: int

    async def encode(
        self, prompt: str | Sequence[int] | Sequence[Mapping[str, object]], **variables: object
    ) -> EncodedPrompt:
        """Token ids of a prompt, made in a thread; `variables` are the chat template's."""

    def stream(
        self,
        prompt: EncodedPrompt,
        params: SamplingParams,
        options: RequestOptions | None = None,
        *,
        request_id: str | None = None,
    ) -> AsyncIterator[TextDelta]:
        """The answer as it comes; closing it ends the request."""


class ChatService:
    """Answers conversations and continues prompts on one model.

    Args:
        llm: the model.
        name: what clients call it; None for its own name.
        on_end: told of every request that ended, in whatever way.

    Attributes:
        llm: as given.
        name: what clients call the model.
    """

    def __init__(
        self,
        llm: ServedLLM,
        name: str | None = None,
        *,
        on_end: Callable[[Ended], None] | None = None,
    ) -> None:
        self.llm = llm
        self.name = name or llm.name
        self._on_end = on_end
        source = llm.tokenizer.chat_template
        self._tool_format = tool_format(source)
        self._reasoning_format = reasoning_format(source)

    async def run(self, request: AnyRequest) -> AsyncGenerator[ChatEvent, None]:
        """The answer as events, in order: Progress*, Started, (Delta | SampleEnd)*, Done.

        Closing the generator, or cancelling who waits for it, ends the request at once.

        Raises:
            ConfigError, GrammarError: parameters that cannot be met.
            ChatTemplateError: the template refuses the messages.
            PromptTooLongError, CapacityError: the prompt does not fit.
            QueueFullError, EngineDiedError, SamplingError: see `firstword.errors`.
        """
        answer = _Answer(request, self._parser_of(request))
        error: BaseException | None = None
        try:
            params = self.resolve(request)
            prompt = await self.encode(request)
            answer.num_prompt = len(prompt.token_ids)
            deltas = self.llm.stream(prompt, params, request.options, request_id=request.request_id)
            async with aclosing(deltas):  # type: ignore[type-var]
                async for delta in deltas:
                    for event in answer.push(delta):
                        yield event
        except BaseException as raised:
            error = raised
            raise
        finally:
            if self._on_end is not None:
                self._on_end(Ended(request, answer.usage, answer.output, error))

    async def encode(self, request: AnyRequest) -> EncodedPrompt:
        """The request's prompt as token ids, the template's words and tools included.

        Raises:
            ConfigError, ChatTemplateError: the prompt is empty, or the template refuses it.
        """
        if isinstance(request, TextRequest):
            return await self.llm.encode(request.prompt)
        variables = dict(request.variables)
        if request.offered_tools:
            variables["tools"] = [tool.for_template() for tool in request.offered_tools]
        return await self.llm.encode(request.messages, **variables)

    def resolve(self, request: AnyRequest) -> SamplingParams:
        """The request's parameters, with what its tools need.

        Raises:
            ConfigError: a form is asked for, and tools that it would rule out.
        """
        if isinstance(request, TextRequest) or not request.offered_tools:
            return request.params
        params, form = request.params, self._tool_format
        if params.grammar is not None:
            raise ConfigError(
                "the answer is to be held to a form (response_format or guided_*), so that no "
                "tool could be called: leave out one of them, or set tool_choice to 'none'"
            )
        if form.needs_special:
            params = replace(params, skip_special_tokens=False)
        return replace(params, grammar=self._call_grammar(request))

    def _call_grammar(self, request: ChatRequest) -> Grammar | None:
        return self._tool_format.grammar(
            request.offered_tools, request.tool_choice, request.parallel_tool_calls
        )

    def _parser_of(self, request: AnyRequest) -> Callable[[], AnswerParser] | None:
        if isinstance(request, TextRequest):
            return None
        # An answer that is held to a form begins with the form: it has no room for reasoning.
        reasons = request.separate_reasoning and request.params.grammar is None
        reasoning = self._reasoning_format if reasons else None
        tools = self._tool_format if request.offered_tools else None
        return lambda: AnswerParser(reasoning=reasoning, tools=tools)


@dataclass
class _Sample:
    """One sample so far.

    Args:
        parser: tells content, reasoning and calls apart; None takes all as content.
        has_calls: a tool call began.
        is_reasoning: the last piece was reasoning.
        num_open: tokens that came without a piece since the last one.
    """

    parser: AnswerParser | None
    has_calls: bool = False
    is_reasoning: bool = False
    num_open: int = 0

    def push(self, text: str, is_last: bool) -> tuple[Piece, ...]:
        """The pieces that became certain."""
        if self.parser is None:
            return (ContentPiece(text),) if text else ()
        pieces = self.parser.push(text) if text else []
        if is_last:
            pieces = [*pieces, *self.parser.finish()]
        self.has_calls |= any(isinstance(piece, ToolCallStart) for piece in pieces)
        return tuple(pieces)

    def count_reasoning(self, pieces: Sequence[Piece], num_tokens: int, is_last: bool) -> int:
        """How many tokens turn out to be reasoning, its marks included.

        Text may be held back, so that tokens come without pieces: they belong to what is open
        then, or to what comes next if nothing is.
        """
        was_reasoning = self.is_reasoning
        if not pieces and not is_last:
            self.num_open += num_tokens
            return 0
        num_open, self.num_open = self.num_open, 0
        begins = bool(pieces) and isinstance(pieces[0], ReasoningPiece)
        if pieces:
            self.is_reasoning = isinstance(pieces[-1], ReasoningPiece)
        counted = num_open if was_reasoning or begins else 0
        return counted + (num_tokens if begins or (not pieces and was_reasoning) else 0)


class _Answer:
    """One request's answer so far: deltas in, events out."""

    def __init__(self, request: AnyRequest, new_parser: Callable[[], AnswerParser] | None) -> None:
        self._samples = [
            _Sample(new_parser() if new_parser else None) for _ in range(request.params.n)
        ]
        self._started = False
        self._cached = self._completion = self._reasoning = 0
        self.num_prompt = 0
        self.output: RequestOutput | None = None

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return Usage(self.num_prompt, self._cached, self._completion, self._reasoning)

    def push(self, delta: TextDelta) -> Iterator[ChatEvent]:
        """The events of one delta.

        Raises:
            FirstwordError: the delta's own.
        """
        if delta.error is not None:
            raise delta.error
        if delta.progress is not None:
            self._cached = delta.progress.num_cached_tokens
            yield Progress(delta.progress)
            return
        if delta.output is not None:
            self.output = delta.output
            self._cached = delta.output.metrics.num_cached_tokens
        if not self._started:
            self._started = True
            yield Started(self.usage)
        yield from self._advance(delta)
        if self.output is not None:
            yield Done(self.output, self.usage)

    def _advance(self, delta: TextDelta) -> Iterator[ChatEvent]:
        sample = self._samples[delta.index]
        is_last = delta.finish_reason is not None
        pieces = sample.push(delta.text, is_last)
        num_tokens = len(delta.token_ids)
        self._completion += num_tokens
        self._reasoning += sample.count_reasoning(pieces, num_tokens, is_last)
        if pieces or delta.logprobs:
            yield Delta(delta.index, pieces, delta.logprobs, self.usage)
        if is_last:
            reason: FinishReason = "length" if delta.finish_reason == "length" else "stop"
            if reason == "stop" and sample.has_calls:
                reason = "tool_calls"
            stopped_by = delta.stop_reason
            yield SampleEnd(
                delta.index, reason, stopped_by if isinstance(stopped_by, str) else None
            )
