from __future__ import annotations

import pytest

from firstword.server.anthropic.schema import MessageBody
from firstword.server.bodies import validate
from firstword.server.errors import RequestError
from firstword.server.openapi import request_body

BODY = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", "1"),
        ("max_tokens", True),
        ("max_tokens", 1.5),
        ("stream", "yes"),
        ("temperature", "hot"),
        ("stop_sequences", "END"),
        ("system", 7),
        ("messages", []),
        ("messages", "Hi"),
    ],
)
def test_nothing_is_converted(field: str, value: object) -> None:
    with pytest.raises(RequestError, match=field):
        validate(MessageBody, {**BODY, field: value})


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document", "source": {}},
        {"type": ["text"], "text": "x"},
        {"text": "x"},
        7,
        {"type": "text", "text": "x", "colour": "red"},
    ],
)
def test_blocks_of_no_kind_are_refused_with_their_place(block: object) -> None:
    messages = [{"role": "user", "content": [block]}]
    with pytest.raises(RequestError, match=r"messages\[0\].content\[0\]"):
        validate(MessageBody, {**BODY, "messages": messages})


def test_the_openapi_page_has_every_field() -> None:
    page = request_body(MessageBody)
    assert "max_tokens" in str(page)
    assert "tool_use_id" in str(page)
    assert "$ref" not in str(page)
