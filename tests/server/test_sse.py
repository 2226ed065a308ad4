"""Events as bytes, and the response that streams them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response

from firstword.server.sse import DONE, KEEP_ALIVE, EventResponse, comment, event, quote


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoted_text_is_one_line_of_json(text: str) -> None:
    quoted = quote(text)
    assert json.loads(quoted) == text
    assert not {b"\n", b"\r"} & {quoted[i : i + 1] for i in range(len(quoted))}


def test_events_and_comments() -> None:
    assert event(b"{}") == b"data: {}\n\n"
    assert event(b"{}", b"ping") == b"event: ping\ndata: {}\n\n"
    assert comment("prefill 1/2") == b": prefill 1/2\n\n"


class Client:
    """The other end of a response; goes away after `after` bodies, if given."""

    def __init__(self, after: int | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self._after, self._gone = after, asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if self._after is not None and len(self.bodies) >= self._after:
            self._gone.set()

    @property
    def bodies(self) -> list[bytes]:
        return [m["body"] for m in self.sent if m["type"] == "http.response.body"]


def refuse(error: Exception) -> Response:
    return Response(str(error), status_code=400)


def last_words(error: Exception) -> bytes:
    return event(f"failed: {error}".encode())


async def serve(chunks: AsyncGenerator[bytes, None], client: Client, **settings: float) -> None:
    response = EventResponse(chunks, refuse, last_words, **settings)  # type: ignore[arg-type]
    await asyncio.wait_for(response({"type": "http"}, client.receive, client.send), 5)


def test_chunks_are_sent_as_they_come() -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        yield event(b"1")
        yield DONE

    async def main() -> None:
        client = Client()
        await serve(chunks(), client)
        start, *_, last = client.sent
        assert start["status"] == 200
        assert (b"content-type", b"text/event-stream; charset=utf-8") in start["headers"]
        assert client.bodies == [event(b"1"), DONE, b""]
        assert last["more_body"] is False

    asyncio.run(main())


def test_error_before_the_first_bytes_is_a_response_of_its_own() -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        raise KeyError("no")
        yield b""

    async def main() -> None:
        client = Client()
        await serve(chunks(), client)
        assert client.sent[0]["status"] == 400

    asyncio.run(main())


@pytest.mark.parametrize("first", [b"", event(b"1")], ids=["after a comment", "after a chunk"])
def test_later_error_is_told_by_the_last_words(first: bytes) -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        if first:
            yield first
        await asyncio.sleep(0.05)
        raise KeyError("no")

    async def main() -> None:
        client = Client()
        await serve(chunks(), client, keep_alive=0.01)
        assert client.sent[0]["status"] == 200
        assert client.bodies[0] == (first or KEEP_ALIVE)
        assert client.bodies[-1] == event(b"failed: 'no'")
        assert [m["more_body"] for m in client.sent[1:]][-2:] == [True, False]

    asyncio.run(main())


def test_no_comment_comes_into_a_refusal() -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        raise KeyError("no")
        yield b""

    class Slow(Client):
        async def send(self, message: Any) -> None:
            await asyncio.sleep(0.03)
            await super().send(message)

    async def main() -> None:
        client = Slow()
        await serve(chunks(), client, keep_alive=0.01)
        assert [m["type"] for m in client.sent] == ["http.response.start", "http.response.body"]
        assert client.sent[0]["status"] == 400

    asyncio.run(main())


def test_silence_is_broken_by_comments() -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(0.1)
        yield DONE

    async def main() -> None:
        client = Client()
        await serve(chunks(), client, keep_alive=0.02)
        assert client.bodies[0] == KEEP_ALIVE
        assert client.bodies.count(KEEP_ALIVE) >= 2
        assert client.bodies[-2:] == [DONE, b""]

    asyncio.run(main())


def test_p26_generator_is_closed_when_the_client_goes() -> None:
    ended: list[str] = []

    async def chunks() -> AsyncGenerator[bytes, None]:
        try:
            yield event(b"1")
            await asyncio.Event().wait()
        finally:
            ended.append("closed")

    asyncio.run(serve(chunks(), Client(after=1)))
    assert ended == ["closed"]
