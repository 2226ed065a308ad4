"""Which bodies are read, and where an error of one is."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from starlette.requests import Request
from starlette.types import Message

from firstword.server.bodies import path, read_json, validate
from firstword.server.errors import RequestError, UnsupportedMediaTypeError
from firstword.server.openai.schema import ChatBody, CompletionBody


def test_places_are_written_as_people_write_them() -> None:
    location = ("messages", 2, "content", "list[ContentPart]", 0, "type")
    assert path(location) == "messages[2].content[0].type"
    assert path(("prompt", "Texts", 1)) == "prompt[1]"


def test_missing_and_unknown_fields_have_codes_of_their_own() -> None:
    with pytest.raises(RequestError) as missing:
        validate(ChatBody, {"model": "m"})
    assert (missing.value.param, missing.value.code) == ("messages", "missing_required_parameter")
    with pytest.raises(RequestError) as unknown:
        validate(CompletionBody, {"model": "m", "prompt": "a", "stream_options": {"x": 1}})
    assert unknown.value.param == "stream_options.x"
    assert unknown.value.code == "unknown_parameter"


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(RequestError) as caught:
        validate(ChatBody, {"model": ["x" * 10_000], "messages": []})
    assert len(str(caught.value)) < 300


def test_p27_a_million_mistakes_cost_no_more_than_one() -> None:
    mistakes: list[object] = [{}] * 1_000_000
    for messages in (mistakes, [{"role": "user", "content": mistakes}]):
        tracemalloc.start()
        try:
            with pytest.raises(RequestError, match="missing"):
                validate(ChatBody, {"model": "m", "messages": messages})
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"content-type": "text/plain"}, "content type is 'text/plain'"),
        ({}, "content type is ''"),
        ({"content-type": "application/json", "content-encoding": "gzip"}, "uncompressed"),
    ],
)
def test_only_plain_json_is_read(headers: dict[str, str], said: str) -> None:
    with pytest.raises(UnsupportedMediaTypeError, match=said):
        asyncio.run(read_json(request(headers)))


def test_a_content_type_may_have_parameters() -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8", "content-encoding": "identity"}
    assert asyncio.run(read_json(request(headers))) == {}


def request(headers: dict[str, str]) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw}, receive)
