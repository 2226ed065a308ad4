"""The service: what it asks the model for, what it makes of the answer, and how requests end."""

from __future__ import annotations

import asyncio
import json

import pytest

from firstword.errors import ConfigError, QueueFullError
from firstword.sampling.params import Grammar, SamplingParams
from firstword.server.chat import (
    ChatEvent,
    ChatRequest,
    ChatService,
    Delta,
    Done,
    Ended,
    SampleEnd,
    Started,
    TextRequest,
)
from firstword.text.pieces import (
    ContentPiece,
    Piece,
    ToolArguments,
    ToolCallEnd,
    ToolCallStart,
    merged,
)
from firstword.text.tools.spec import ToolSpec
from tests.server.fake_llm import CHATML, FakeAsyncLLM, Script, byte_tokenizer

HERMES = CHATML + "{# <tool_call> </tool_call> #}"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
MESSAGES: list[dict[str, object]] = [{"role": "user", "content": "Hi"}]


def hermes(text: str, size: int = 1) -> FakeAsyncLLM:
    script = Script(text, tokens_per_delta=size)
    return FakeAsyncLLM(script, tokenizer=byte_tokenizer(HERMES))


def run(llm: FakeAsyncLLM, request: ChatRequest | TextRequest) -> list[ChatEvent]:
    async def collect() -> list[ChatEvent]:
        return [event async for event in ChatService(llm).run(request)]

    return asyncio.run(collect())


def pieces_of(events: list[ChatEvent]) -> list[Piece]:
    deltas = [event for event in events if isinstance(event, Delta)]
    return merged([piece for delta in deltas for piece in delta.pieces])


def test_events_come_in_order() -> None:
    events = run(FakeAsyncLLM(), ChatRequest("r", MESSAGES, SamplingParams()))
    assert isinstance(events[0], Started)
    assert isinstance(events[-2], SampleEnd)
    assert isinstance(events[-1], Done)
    assert pieces_of(events) == [ContentPiece("Hello")]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_p29_calls_are_the_same_at_every_chunking(size: int) -> None:
    llm = hermes(f"Let me see.{CALL}", size)
    events = run(llm, ChatRequest("r", MESSAGES, SamplingParams(), tools=(ADD,)))
    content, start, arguments, end = pieces_of(events)
    assert isinstance(content, ContentPiece) and content.text.strip() == "Let me see."
    assert isinstance(start, ToolCallStart) and start.name == "add"
    assert start.call_id.startswith("call_")
    assert isinstance(arguments, ToolArguments) and json.loads(arguments.text) == {"a": 1}
    assert isinstance(end, ToolCallEnd)
    assert [e.finish_reason for e in events if isinstance(e, SampleEnd)] == ["tool_calls"]


def test_length_beats_tool_calls() -> None:
    params = SamplingParams(max_tokens=len(CALL) - 15)
    events = run(hermes(CALL), ChatRequest("r", MESSAGES, params, tools=(ADD,)))
    assert [e.finish_reason for e in events if isinstance(e, SampleEnd)] == ["length"]


def test_tools_are_shown_to_the_template_unless_none_may_be_called() -> None:
    llm = hermes(CALL)
    run(llm, ChatRequest("r", MESSAGES, SamplingParams(), tools=(ADD,)))
    assert llm.variables["tools"] == [ADD.for_template()]
    request = ChatRequest("r", MESSAGES, SamplingParams(), tools=(ADD,), tool_choice="none")
    assert pieces_of(run(llm, request)) == [ContentPiece(CALL)]
    assert llm.variables == {}


def test_required_call_holds_the_answer_to_a_grammar() -> None:
    llm = hermes(CALL)
    request = ChatRequest("r", MESSAGES, SamplingParams(), tools=(ADD,), tool_choice="required")
    events = run(llm, request)
    assert llm.requests[0].params.grammar is not None
    assert isinstance(events[-1], Done) and events[-1].params == llm.requests[0].params


def test_form_and_tools_contradict_each_other() -> None:
    params = SamplingParams(grammar=Grammar("json_object"))
    with pytest.raises(ConfigError, match="tool_choice to 'none'"):
        run(hermes(CALL), ChatRequest("r", MESSAGES, params, tools=(ADD,)))


def test_raw_prompts_are_content_alone() -> None:
    events = run(hermes(CALL), TextRequest("r", "Hi", SamplingParams()))
    assert pieces_of(events) == [ContentPiece(CALL)]


def test_p26_every_end_is_told_with_its_usage() -> None:
    ended: list[Ended] = []
    llm = FakeAsyncLLM(Script("Hello"))
    service = ChatService(llm, on_end=ended.append)

    async def close_early() -> None:
        events = service.run(TextRequest("closed", "abc", SamplingParams()))
        async for event in events:
            if isinstance(event, Delta):
                break
        await events.aclose()

    async def fail() -> None:
        llm.script = Script(refusal=QueueFullError("full", 1.0))
        async for _ in service.run(TextRequest("refused", "abc", SamplingParams())):
            pass

    asyncio.run(close_early())
    with pytest.raises(QueueFullError):
        asyncio.run(fail())
    closed, refused = ended
    assert (closed.usage.prompt, closed.usage.completion, closed.output) == (3, 1, None)
    assert isinstance(closed.error, GeneratorExit)
    assert (refused.usage.prompt, refused.usage.completion) == (3, 0)
    assert isinstance(refused.error, QueueFullError)
    assert llm.aborted == ["closed"]
