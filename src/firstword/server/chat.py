"""The service under every API family: a neutral request in, the events of its answer out.

Not here: the words of any API (openai, anthropic), HTTP, the events themselves (events).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, cast

from firstword import __version__
from firstword.engine.messages import EngineInfo
from firstword.engine.outputs import RequestOutput, TextDelta
from firstword.engine.request import RequestOptions
from firstword.errors import ConfigError
from firstword.processor.prompt import EncodedPrompt, Prompt
from firstword.sampling.params import Grammar, SamplingParams
from firstword.server.answer import Answer
from firstword.server.errors import UnknownModelError
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
from firstword.text.chat_template import ChatTemplate
from firstword.text.reasoning import ReasoningFormat, reasoning_format
from firstword.text.tokenizer import Tokenizer
from firstword.text.tools.answer import AnswerParser
from firstword.text.tools.registry import tool_format
from firstword.text.tools.spec import ToolChoice, ToolFormat, ToolSpec

__all__ = [
    "AnyRequest",
    "ChatEvent",
    "ChatRequest",
    "ChatService",
    "Delta",
    "Done",
    "Ended",
    "FinishReason",
    "Progress",
    "SampleEnd",
    "ServedLLM",
    "Started",
    "TextRequest",
    "Usage",
]


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

    @property
    def name(self) -> str:
        """The model's name."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""

    @property
    def template(self) -> ChatTemplate | None:
        """The model's chat template."""

    @property
    def max_model_len(self) -> int:
        """The context in tokens, prompt and output together."""

    @property
    def info(self) -> EngineInfo:
        """What there is to know of the loaded model."""

    async def encode(self, prompt: Prompt, **variables: object) -> EncodedPrompt:
        """Token ids of a prompt, made on a thread; `variables` are the chat template's."""

    def stream(
        self,
        prompt: Prompt | EncodedPrompt,
        params: SamplingParams,
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

    @cached_property
    def fingerprint(self) -> str:
        """Version, backend and model, on which the tokens of a request with a seed depend."""
        info = self.llm.info
        backend = info.backend.partition(" ")[0]  # without the processor's kind, which changes none
        return f"firstword-{__version__}-{backend}-{info.fingerprint[:16]}"

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served.

        Args:
            name: as the request has it; None, which is the served one.

        Raises:
            UnknownModelError: it is neither the name that clients know nor the model's own.
        """
        if name is not None and name not in (self.name, self.llm.name):
            raise UnknownModelError(
                f"there is no model {name[:80]!r}: this server has {self.name!r}", "model"
            )

    async def run(self, request: AnyRequest) -> AsyncGenerator[ChatEvent, None]:
        """The answer as events, in order: Progress*, Started, (Delta | SampleEnd)*, Done.

        Closing the generator, or cancelling who waits for it, ends the request at once.

        Raises:
            ConfigError, GrammarError: parameters that cannot be met.
            ChatTemplateError: the template refuses the messages.
            PromptTooLongError, CapacityError: the prompt does not fit.
            QueueFullError, EngineDiedError, SamplingError: see `firstword.errors`.
        """
        answer: Answer | None = None
        error: BaseException | None = None
        try:
            prompt = await self.encode(request)
            answer = await self._begin(request, prompt)
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

    async def _begin(self, request: AnyRequest, prompt: EncodedPrompt) -> Answer:
        if isinstance(request, TextRequest):
            return Answer(prompt, request.params, lambda: None)
        reasoning, inside = self._reasoning(request, prompt)
        tools = self._tool_format if request.offered_tools else None
        params = request.params
        if tools is not None:
            # On a thread: schemas can be long, and other streams must not wait for their check.
            grammar = await asyncio.to_thread(_call_grammar, request, tools, reasoning, inside)
            params = replace(params, grammar=grammar)
        if (tools and tools.needs_special) or (reasoning and reasoning.needs_special):
            params = replace(params, skip_special_tokens=False)

        def new_parser() -> AnswerParser:
            return AnswerParser(
                reasoning=reasoning,
                inside_reasoning=inside,
                tools=tools,
                names=[tool.name for tool in request.offered_tools],
                call_id=_call_id,
                parallel=request.parallel_tool_calls,
            )

        return Answer(prompt, params, new_parser)

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
