"""What both completions share: how streams end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from firstword.errors import ConfigError, EngineDiedError
from firstword.server.openai.exchange import refuse, stream_form, stream_response
from firstword.server.openai.schema import CompletionBody


def body(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"model": "m", "prompt": "a"} | fields)


async def bodies(chunks: AsyncGenerator[bytes, None]) -> list[bytes]:
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    await stream_response(chunks, body(), 15.0)({"type": "http"}, receive, send)
    return sent


@pytest.mark.parametrize("error", [EngineDiedError("gone"), ZeroDivisionError("secret")])
def test_late_errors_are_chunks_before_the_end(error: Exception) -> None:
    async def chunks() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        raise error

    told = asyncio.run(bodies(chunks()))[-1]
    assert told.startswith(b'data: {"error":')
    assert told.endswith(b"\n\ndata: [DONE]\n\n")
    assert b"secret" not in told


def test_refusals_name_the_field() -> None:
    assert b'"param":"top_k"' in bytes(refuse(ConfigError("top_k is -2"), body()).body)


def test_what_a_stream_carries() -> None:
    form = stream_form(body(stream=True, stream_options={"include_usage": True}))
    assert (form.include_usage, form.continuous_usage, form.progress) == (True, False, False)
