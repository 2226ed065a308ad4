"""An answer as server-sent events of the API, written from templates.

Not here: which blocks there are (blocks), how events reach the client (sse). Source: the Anthropic
API reference, "Streaming messages".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from firstword.server import sse
from firstword.server.anthropic.blocks import BlockDelta, BlockEvent, BlockSplitter, BlockStart
from firstword.server.anthropic.message import message, stop_reason, usage
from firstword.server.chat import (
    ChatEvent,
    ChatRequest,
    ChatService,
    Delta,
    Done,
    Progress,
    SampleEnd,
    Started,
)
from firstword.server.errors import report
from firstword.server.responses import json_bytes

PING = sse.event(b'{"type":"ping"}', b"ping")
"""What the API sends while there is nothing to say."""

_DELTA = (
    b"event: content_block_delta\n"
    b'data: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
)
_DELTA_TYPES = {
    "text": (b"text_delta", b"text"),
    "thinking": (b"thinking_delta", b"thinking"),
    "tool_use": (b"input_json_delta", b"partial_json"),
}
_START = (
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":%d,"content_block":%b}\n\n'
)
_STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n'
_EMPTY_BLOCKS = {
    "text": b'{"type":"text","text":""}',
    "thinking": b'{"type":"thinking","thinking":"","signature":""}',
}
_MESSAGE_STOP = sse.event(b'{"type":"message_stop"}', b"message_stop")


async def events(service: ChatService, request: ChatRequest) -> AsyncGenerator[bytes, None]:
    """The events of an answer.

    Args:
        service: answers.
        request: a conversation.

    Raises:
        FirstwordError: see `ChatService.run`.
    """
    writer = _Writer(service.name, request)
    async with aclosing(service.run(request)) as answer:
        async for event in answer:
            if written := writer.write(event):
                yield written


def error_event(error: BaseException, http_request_id: str) -> bytes:
    """What ends a stream that cannot go on.

    Args:
        error: anything that was raised.
        http_request_id: of the HTTP request, by which the server's log knows it.
    """
    body = {**report(error).anthropic(), "request_id": http_request_id}
    return sse.event(json_bytes(body), b"error")


class _Writer:
    """Writes the events of one answer."""

    def __init__(self, model: str, request: ChatRequest) -> None:
        self._model, self._request = model, request
        self._splitter = BlockSplitter(request.parallel_tool_calls)
        self._end = SampleEnd(0, "stop")

    def write(self, event: ChatEvent) -> bytes:
        """The bytes that tell of an event; may be none."""
        if isinstance(event, Delta):
            changes = (change for piece in event.pieces for change in self._splitter.push(piece))
            return b"".join(map(_block_event, changes))
        if isinstance(event, Progress):
            return sse.comment(event.in_words())
        if isinstance(event, Started):
            empty = message(self._request.request_id, self._model, [], usage(event.usage))
            start = {"type": "message_start", "message": empty}
            return sse.event(json_bytes(start), b"message_start") + PING
        if isinstance(event, SampleEnd):
            self._end = event
            return b""
        return b"".join(self._finish(event))

    def _finish(self, done: Done) -> Iterator[bytes]:
        yield from map(_block_event, self._splitter.finish())
        end = self._end
        delta = {"stop_reason": stop_reason(end), "stop_sequence": end.stop_string}
        told = {"type": "message_delta", "delta": delta, "usage": usage(done.usage)}
        yield sse.event(json_bytes(told), b"message_delta")
        yield _MESSAGE_STOP


def _block_event(change: BlockEvent) -> bytes:
    if isinstance(change, BlockDelta):
        return _DELTA % (change.index, *_DELTA_TYPES[change.kind], sse.quote(change.text))
    if isinstance(change, BlockStart):
        return _START % (change.index, _empty_block(change))
    return _STOP % change.index


def _empty_block(start: BlockStart) -> bytes:
    if start.kind != "tool_use":
        return _EMPTY_BLOCKS[start.kind]
    return b'{"type":"tool_use","id":%b,"name":%b,"input":{}}' % (
        sse.quote(start.call_id),
        sse.quote(start.name),
    )
