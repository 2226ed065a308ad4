"""A whole answer as a message of the API, and the words for how it ended and what it took.

Not here: streamed answers (stream), which use the same words.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from pydantic_core import from_json

from firstword.server.anthropic.blocks import BlockDelta, BlockEvent, BlockSplitter, BlockStart
from firstword.server.chat import ChatRequest, ChatService, Delta, Done, SampleEnd, Usage


@dataclass
class Block:
    """A content block while it grows; see `BlockStart` for its fields."""

    start: BlockStart
    text: list[str] = field(default_factory=list)

    def content(self) -> dict[str, object]:
        """The block as JSON; see `_input` for the arguments of a call that was cut."""
        text = "".join(self.text)
        if self.start.kind == "text":
            return {"type": "text", "text": text}
        if self.start.kind == "thinking":
            return {"type": "thinking", "thinking": text, "signature": ""}
        called = {"type": "tool_use", "id": self.start.call_id, "name": self.start.name}
        return {**called, "input": _input(text)}


def stop_reason(end: SampleEnd) -> str:
    """Why an answer ended, in the API's words."""
    if end.stop_string is not None:
        return "stop_sequence"
    return {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[end.finish_reason]


def usage(tokens: Usage) -> dict[str, object]:
    """Tokens in the API's words: those read from the cache are no input tokens."""
    counted: dict[str, object] = {
        "input_tokens": tokens.prompt - tokens.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.completion,
    }
    if tokens.reasoning:
        counted["output_tokens_details"] = {"thinking_tokens": tokens.reasoning}
    if tokens.cached:
        counted["cache_read_by_source"] = tokens.sources._asdict()
    if tokens.miss is not None:
        counted["cache_miss"] = tokens.miss.to_dict()
    return counted


def message(
    message_id: str, model: str, content: list[dict[str, object]], tokens: Mapping[str, object]
) -> dict[str, object]:
    """A message that has not ended.

    Args:
        message_id: the answer's own.
        model: the served model's name.
        content: blocks.
        tokens: see `usage`.
    """
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": dict(tokens),
    }


async def answer(service: ChatService, request: ChatRequest) -> dict[str, object]:
    """The whole answer to a request.

    Raises:
        FirstwordError: see `ChatService.run`.
    """
    splitter = BlockSplitter(request.parallel_tool_calls)
    blocks: list[Block] = []
    end = SampleEnd(0, "stop")
    tokens = Usage()
    async with aclosing(service.run(request)) as events:
        async for event in events:
            if isinstance(event, Delta):
                for piece in event.pieces:
                    for change in splitter.push(piece):
                        _apply(blocks, change)
            elif isinstance(event, SampleEnd):
                end = event
            elif isinstance(event, Done):
                tokens = event.usage
    content = [block.content() for block in blocks]
    whole = message(request.request_id, service.name, content, usage(tokens))
    return {**whole, "stop_reason": stop_reason(end), "stop_sequence": end.stop_string}


def _input(arguments: str) -> dict[str, object]:
    """Arguments as an object: of those that were cut, what is whole; of broken ones, nothing."""
    try:
        value = from_json(arguments, allow_partial=True) if arguments.strip() else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _apply(blocks: list[Block], change: BlockEvent) -> None:
    if isinstance(change, BlockStart):
        blocks.append(Block(change))
    elif isinstance(change, BlockDelta):
        blocks[-1].text.append(change.text)
