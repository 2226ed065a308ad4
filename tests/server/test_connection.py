"""Heads that do not end, clients that are silent or do not read, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from firstword.server.connection import BoundedConnection, bounded
from firstword.server.run import listen

BIG = 8_000_000
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = bytes(BIG) if scope["path"] == "/big" else b"hello"
    await send({"type": "http.response.body", "body": body})


def talk_to(talk: Talk, max_bytes: int = 1000, seconds: float = 30.0) -> None:
    """Let `talk` speak to a server whose heads are limited so."""

    async def session() -> None:
        config = uvicorn.Config(
            hello,
            http=bounded(max_bytes, seconds),
            ws="none",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=1,
        )
        server = uvicorn.Server(config)
        with listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            serving = asyncio.create_task(server._serve([listener]))
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.wait_for(talk(reader, writer), 20)
            writer.close()
            server.should_exit = True
            await serving

    asyncio.run(session())


def test_a_head_without_end_is_431() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nlong: ")
        answer = asyncio.create_task(reader.read())
        while not answer.done():
            if not writer.is_closing():
                writer.write(b"x" * 100)
            await asyncio.sleep(0.001)
        assert (await answer).startswith(b"HTTP/1.1 431 ")

    talk_to(talk)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_a_head_that_does_not_come_ends_the_connection(said: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        assert await reader.read() == b""

    talk_to(talk, seconds=0.1)


def test_each_head_of_a_connection_is_counted_from_its_own_beginning() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = b"GET / HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * 600
        for _ in range(3):
            writer.write(request)
            await asyncio.sleep(0.02)
            writer.write(b"\r\n\r\n")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
            await reader.readuntil(b"0\r\n\r\n")

    talk_to(talk)


def test_p26_what_follows_a_refused_body_does_not_hold_the_connection() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nbegin")
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"more")
        assert await reader.read() == b""

    talk_to(talk)


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="not on this system")
def test_p26_who_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "dead_seconds", 1)

    lost: list[Exception | None] = []

    def connection_lost(self: BoundedConnection, error: Exception | None) -> None:
        lost.append(error)
        HttpToolsProtocol.connection_lost(self, error)

    monkeypatch.setattr(BoundedConnection, "connection_lost", connection_lost)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /big HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        while not lost:
            await asyncio.sleep(0.05)
        assert isinstance(lost[0], TimeoutError)

    talk_to(talk)
