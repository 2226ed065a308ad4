"""A server whose answers are a script: bytes to send and seconds to wait."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

TEMPLATE_TOKENS = 7
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


Script = Callable[[Request], Iterable[bytes | float]]
"""Bytes are sent and seconds waited for; the connection is closed after the last."""


@dataclass
class ScriptedServer:
    """Listens on a free port, in a thread of its own, while it is entered.

    Args:
        script: answers every request.
    """

    script: Script
    requests: list[Request] = field(default_factory=list)
    most_at_once: int = 0
    _running: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        start = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result()
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        try:
            request = await _read(reader)
            self.requests.append(request)
            for item in self.script(request):
                if isinstance(item, bytes):
                    writer.write(item)
                    await writer.drain()
                else:
                    await asyncio.sleep(item)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away
        finally:
            self._running -= 1
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines) if k}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, json.loads(body) if body else None)


def chunk(data: bytes) -> bytes:
    """Data as one chunk of the chunked coding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(fields: object) -> bytes:
    """A server-sent event."""
    return b"data: %s\n\n" % json.dumps(fields, ensure_ascii=False).encode()


def text_event(text: str) -> bytes:
    """An event with a piece of the answer."""
    return event({"choices": [{"index": 0, "delta": {"content": text}}]})


def finish_event() -> bytes:
    """The event that says why the answer ended."""
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})


def usage_event(prompt: int, completion: int, cached: int = 0) -> bytes:
    """The event that counts tokens."""
    details = {"cached_tokens": cached}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"choices": [], "usage": counts | {"prompt_tokens_details": details}})


def json_reply(fields: object, status: str = "200 OK") -> bytes:
    """A whole answer with a JSON body."""
    body = json.dumps(fields).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def num_words(messages: list[dict[str, str]]) -> int:
    """Tokens of a chat to this server, the template's apart."""
    return sum(len(message["content"].split()) for message in messages)


def chat(request: Request, words: int | None = None) -> Iterator[bytes]:
    """A whole streamed answer: one word a token, usage, and the end."""
    count = request.body["max_tokens"] if words is None else words
    yield STREAM_HEAD
    for number in range(count):
        yield chunk(text_event(f"w{number} "))
    prompt = num_words(request.body["messages"]) + TEMPLATE_TOKENS
    yield chunk(finish_event() + usage_event(prompt, count))
    yield chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def usual(request: Request) -> Iterator[bytes]:
    """A server that counts and answers as it should: one word is one token."""
    if request.path == "/v1/models":
        yield json_reply({"data": [{"id": "tiny"}, {"id": "other"}]})
    elif request.path == "/tokenize":
        yield json_reply({"count": len(request.body["prompt"].split())})
    else:
        yield from chat(request)
