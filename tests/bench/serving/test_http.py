from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from firstword.bench.serving.http import (
    Address,
    ChunkedDecoder,
    Connection,
    LengthDecoder,
    RequestFailedError,
)
from firstword.errors import ConfigError
from tests.bench.serving.scripted_server import Request, ScriptedServer, json_reply

CHUNKS = (
    b"5\r\nhello\r\n3;name=value\r\n, w\r\nA\r\norld\r\n\xf0\x9f\x98\x80\r\n0\r\nTrailer: x\r\n\r\n"
)
CONTENT = "hello, world\r\n😀".encode()


def fetch(*answer: bytes | float, body: bytes = b"{}") -> tuple[int, bytes]:
    """Status and body of an answer that comes in these pieces."""

    async def run(url: str) -> tuple[int, bytes]:
        async with Connection(Address.parse(url)) as connection:
            status = await connection.send("POST", "/x", {"X-Name": "value"}, body)
            return status, await connection.read_all()

    with ScriptedServer(lambda request: answer) as server:
        return asyncio.run(run(server.url))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8000/v1", Address("127.0.0.1", 8000, False, "/v1")),
        ("http://host/", Address("host", 80)),
        ("https://host/api/v1/", Address("host", 443, True, "/api/v1")),
        ("http://[::1]:9", Address("::1", 9)),
    ],
)
def test_addresses_are_read(url: str, address: Address) -> None:
    assert Address.parse(url) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host/", "http://", "http://host:x/"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="URL"):
        Address.parse(url)


@pytest.mark.parametrize("size", range(1, len(CHUNKS)))
def test_chunks_may_be_cut_anywhere(size: int) -> None:
    decoder, content = ChunkedDecoder(), b""
    for start in range(0, len(CHUNKS), size):
        assert not decoder.is_done
        content += decoder.push(CHUNKS[start : start + size])
    assert content == CONTENT and decoder.is_done


@pytest.mark.parametrize("bad", [b"xyz\r\n", b"-4\r\nabcd\r\n", b"\r\n"])
def test_what_is_no_chunk_is_refused(bad: bytes) -> None:
    with pytest.raises(RequestFailedError, match="malformed"):
        ChunkedDecoder().push(bad)


def test_a_body_of_known_length_ends_there() -> None:
    decoder = LengthDecoder(5)
    assert decoder.push(b"abc") == b"abc" and not decoder.is_done
    assert decoder.push(b"defg") == b"de" and decoder.is_done


def test_requests_are_whole() -> None:
    seen: list[Request] = []

    def script(request: Request) -> Iterator[bytes]:
        seen.append(request)
        yield json_reply({"a": 1}, "404 Not Found")

    async def run(url: str) -> int:
        async with Connection(Address.parse(url)) as connection:
            return await connection.send("POST", "/x", {"X-Name": "value"}, b'{"b": 2}')

    with ScriptedServer(script) as server:
        assert asyncio.run(run(server.url)) == 404
    (request,) = seen
    assert (request.method, request.path, request.body) == ("POST", "/v1/x", {"b": 2})
    assert request.headers["x-name"] == "value" and request.headers["connection"] == "close"


def test_answers_come_in_any_of_three_forms() -> None:
    assert fetch(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab, and more") == (200, b"ab")
    assert fetch(b"HTTP/1.1 200 OK\r\n\r\nto the", b" end") == (200, b"to the end")
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert fetch(chunked, CHUNKS[:8], 0.01, CHUNKS[8:]) == (200, CONTENT)


def test_an_interim_answer_is_passed_over() -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
    assert fetch(answer) == (201, b"")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", "closed early"),
        (b"HTTP/1.1 200 OK\r\nContent-Len", "closed early"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "closed early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "closed early"),
        (b"SSH-2.0-x\r\n\r\n", "malformed answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "malformed answer"),
        (b"HTTP/1.1 200 OK\r\nX: " + 70_000 * b"x" + b"\r\n\r\n", "malformed answer"),
    ],
)
def test_broken_answers_have_a_kind(answer: bytes, kind: str) -> None:
    with pytest.raises(RequestFailedError) as failed:
        fetch(answer)
    assert failed.value.kind == kind


def test_a_port_without_a_server_is_no_connection() -> None:
    with ScriptedServer(lambda request: ()) as server:
        url = server.url

    async def run() -> None:
        async with Connection(Address.parse(url)):
            pass

    with pytest.raises(RequestFailedError, match="no connection"):
        asyncio.run(run())
