"""One answer of the model as neutral events: what every API family streams and counts from.

Not here: the words of any API (openai, anthropic), HTTP, and the parsing of tool calls and
reasoning themselves (text.tools, text.reasoning).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol, cast

from firstword.engine.engine import RequestOptions
from firstword.engine.outputs import PromptProgress, RequestOutput, TextDelta, TokenLogprob
from firstword.errors import ConfigError
from firstword.processor.prompt import EncodedPrompt
from firstword.sampling.params import Grammar, SamplingParams
from firstword.text.answer import AnswerParser
from firstword.text.chat_template import ChatTemplate
from firstword.text.pieces import ContentPiece, Piece, ToolCallStart
from firstword.text.reasoning import ReasoningFormat, reasoning_format
from firstword.text.tokenizer import Tokenizer
from firstword.text.tools.registry import tool_format
from firstword.text.tools.spec import ToolChoice, ToolFormat, ToolSpec

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
    """

    index: int
    finish_reason: FinishReason
    stop_string: str | None = None


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

    @property
    def template(self) -> ChatTemplate | None:
        """The model's chat template."""

    @property
    def max_model_len(self) -> int:
        """The context in tokens, prompt and output together."""

    async def encode(self, prompt: Prompt, **variables: object) -> EncodedPrompt:
        """Token ids of a prompt, made on a thread; `variables` are the chat template's."""

    def stream(
        self,
        prompt: Prompt | EncodedPrompt,
        params: SamplingParams | None = None,
        options: RequestOptions | None = None,
        *,
        request_id: str | None = None,
    ) -> AsyncIterator[TextDelta]:
        """The answer as it comes: an async generator, whose closing ends the request."""


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

    async def run(self, request: AnyRequest) -> AsyncGenerator[ChatEvent, None]:
        """The answer as events, in order: Progress*, Started, (Delta | SampleEnd)*, Done.

        Closing the generator, or cancelling who waits for it, ends the request at once.

        Raises:
            ConfigError, GrammarError: parameters that cannot be met.
            ChatTemplateError: the template refuses the messages.
            PromptTooLongError, CapacityError: the prompt does not fit.
            QueueFullError, EngineDiedError, SamplingError: see `firstword.errors`.
        """
        answer: _Answer | None = None
        error: BaseException | None = None
        try:
            prompt = await self.encode(request)
            answer = self._begin(request, prompt)
            deltas = self.llm.stream(
                prompt, answer.params, request.options, request_id=request.request_id
            )
            async with aclosing(cast("AsyncGenerator[TextDelta, None]", deltas)):
                async for delta in deltas:
                    for event in answer.push(delta):
                        yield event
        except BaseException as raised:
            error = raised
            raise
        finally:
            if self._on_end is not None:
                usage, output = (answer.usage, answer.output) if answer else (Usage(), None)
                self._on_end(Ended(request, usage, output, error))

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

    def _begin(self, request: AnyRequest, prompt: EncodedPrompt) -> _Answer:
        if isinstance(request, TextRequest):
            return _Answer(prompt, request.params, lambda: None)
        reasoning, inside = self._reasoning(request, prompt)
        tools = self._tool_format if request.offered_tools else None
        params = request.params
        if tools is not None:
            params = replace(params, grammar=_call_grammar(request, tools, reasoning, inside))
        if (tools and tools.needs_special) or (reasoning and reasoning.needs_special):
            params = replace(params, skip_special_tokens=False)

        def new_parser() -> AnswerParser:
            parser = None
            if tools is not None:
                names = [tool.name for tool in request.offered_tools]
                parser = tools.parser(names, _call_id, parallel=request.parallel_tool_calls)
            return AnswerParser(reasoning=reasoning, inside_reasoning=inside, tools=parser)

        return _Answer(prompt, params, new_parser)

    def _reasoning(
        self, request: ChatRequest, prompt: EncodedPrompt
    ) -> tuple[ReasoningFormat | None, bool]:
        """(the marks to look for, whether the prompt opened the reasoning already)."""
        reasoning = self._reasoning_format
        # An answer that is held to a form begins with the form: it has no room for reasoning.
        if reasoning is None or not request.separate_reasoning or request.params.grammar:
            return None, False
        return reasoning, reasoning.is_opened_by(prompt.text or "")

    @cached_property
    def _tool_format(self) -> ToolFormat:
        return tool_format(self.llm.tokenizer.chat_template, self._is_control)

    @cached_property
    def _reasoning_format(self) -> ReasoningFormat | None:
        return reasoning_format(self.llm.tokenizer.chat_template, self._is_control)

    def _is_control(self, string: str) -> bool:
        return self.llm.tokenizer.find_controls(string) == [(0, len(string))]


def _call_grammar(
    request: ChatRequest, tools: ToolFormat, reasoning: ReasoningFormat | None, inside: bool
) -> Grammar | None:
    if request.params.grammar is not None:
        raise ConfigError(
            "the answer is to be held to a form (response_format or guided_*), so that no tool "
            "could be called: leave out one of them, or set tool_choice to 'none'"
        )
    return tools.grammar(
        request.offered_tools,
        request.tool_choice,
        parallel=request.parallel_tool_calls,
        reasoning=reasoning,
        inside_reasoning=inside,
    )


def _call_id(index: int) -> str:
    return f"call_{secrets.token_hex(12)}"


@dataclass
class _Sample:
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
        return 0 if self.parser is None else self.parser.num_reasoning_tokens


class _Answer:
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
        self._samples = [_Sample(new_parser()) for _ in range(params.n)]
        self._started = False
        self._cached = self._completion = 0

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        reasoning = sum(sample.num_reasoning_tokens for sample in self._samples)
        return Usage(self._num_prompt, self._cached, self._completion, reasoning)

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
            yield Started(Usage(self._num_prompt, self._cached), self.params)
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
            yield SampleEnd(delta.index, reason, stop_string)
