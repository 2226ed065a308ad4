"""Server-sent events: their bytes, and the response that streams them.

Format: HTML Living Standard, 9.2 "Server-sent events". Not here: what the events say (the API
families), where they come from (chat).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from json.encoder import encode_basestring  # in C where built

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from firstword.server.disconnect import until_gone

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would gather a stream before passing it on
}
DONE = b"data: [DONE]\n\n"
HEADERS_AFTER = 1.0
"""Seconds that the response's headers wait for the first bytes, so that a request which is
refused by then is refused with a status of its own."""


def quote(text: str) -> bytes:
    """A text as a JSON string, in UTF-8; it holds no line end, so it can stand in an event."""
    quoted: str = encode_basestring(text)
    return quoted.encode()


def event(data: bytes, name: bytes = b"") -> bytes:
    """One event.

    Args:
        data: its data, without line ends.
        name: its type; none for the usual "message".
    """
    return b"event: %b\ndata: %b\n\n" % (name, data) if name else b"data: %b\n\n" % data


def comment(text: str) -> bytes:
    """A line that clients skip, and that keeps a connection alive.

    Args:
        text: without line ends.
    """
    return b": %b\n\n" % text.encode()


KEEP_ALIVE = comment("keep-alive")


class EventResponse(Response):
    """Streams the chunks of a generator, and closes it as soon as the client has gone.

    While nothing comes, a comment is sent every `keep_alive` seconds. An exception of the
    generator before the first bytes, comments included, is a response of its own; a later one is
    told by the last bytes.

    Args:
        chunks: complete events, one or several in each item.
        refusal: the response for an exception before the first bytes were sent.
        last_words: the events that tell of a later one and end the stream.
        keep_alive: seconds without bytes after which a comment is sent, above 0.
        keep_alive_bytes: the comment, or an event that says as little.
        headers: further headers.
    """

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        refusal: Callable[[Exception], Response],
        last_words: Callable[[Exception], bytes],
        *,
        keep_alive: float = 15.0,
        keep_alive_bytes: bytes = KEEP_ALIVE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code, self.background = 200, None
        self.init_headers({**HEADERS, **(headers or {})})
        self._chunks, self._refusal, self._last_words = chunks, refusal, last_words
        self._keep_alive, self._keep_alive_bytes = keep_alive, keep_alive_bytes
        self._started = self._ended = False
        self._turn = asyncio.Lock()  # one send at a time, and the headers first
        self._last_sent = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the response (ASGI)."""
        pump = asyncio.create_task(self._pump(scope, receive, send))
        gone = asyncio.create_task(until_gone(receive))
        beat = asyncio.create_task(self._beat(send))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pump, gone, beat):
                task.cancel()
            await asyncio.gather(pump, gone, beat, return_exceptions=True)
            await self._chunks.aclose()
        if not pump.cancelled():
            await pump  # raises what went wrong

    async def _pump(self, scope: Scope, receive: Receive, send: Send) -> None:
        error: Exception | None = None
        while error is None:
            try:
                chunk = await anext(self._chunks)
            except StopAsyncIteration:
                break
            except Exception as raised:
                error = raised
            else:
                await self._send(send, chunk)
        if error is not None and not self._started:
            self._ended = True  # no comment may come between the refusal's own messages
            await self._refusal(error)(scope, receive, send)
            return
        await self._send(send, b"" if error is None else self._last_words(error), more=False)

    async def _send(self, send: Send, chunk: bytes, more: bool = True) -> None:
        async with self._turn:
            if self._ended:
                return
            self._ended = not more
            if not self._started:
                self._started = True
                headers = self.raw_headers
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": chunk, "more_body": more})
        self._last_sent = time.monotonic()

    async def _beat(self, send: Send) -> None:
        """Headers after a while, and a comment whenever nothing was sent for too long."""
        await asyncio.sleep(min(HEADERS_AFTER, self._keep_alive))
        if not self._started:
            await self._send(send, self._keep_alive_bytes)
        while True:
            silent = time.monotonic() - self._last_sent
            await asyncio.sleep(max(self._keep_alive - silent, 0.001))
            silent = time.monotonic() - self._last_sent
            # A client that reads slowly has bytes to read: it needs no more of them.
            if silent >= self._keep_alive and not self._turn.locked():
                await self._send(send, self._keep_alive_bytes)
