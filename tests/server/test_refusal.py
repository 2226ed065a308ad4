from __future__ import annotations

import asyncio
import json

import pytest
from starlette.types import Message

from firstword.server.errors import KINDS, AuthenticationError
from firstword.server.refusal import Refusal, is_anthropic, send_refusal

NO_KEY = Refusal(KINDS[AuthenticationError], "no key", {"www-authenticate": "Bearer"}, closes=True)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/messages", True),
        ("/v1/messages/count_tokens", True),
        ("/v1/messages_of_mine", False),
        ("/v1/chat/completions", False),
        ("/", False),
    ],
)
def test_whose_path_it_is(path: str, expected: bool) -> None:
    assert is_anthropic(path) is expected


def test_both_families_read_it() -> None:
    openai = NO_KEY.body("/v1/models", "r1")
    assert openai == {
        "error": {
            "message": "no key",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_api_key",
        }
    }
    assert NO_KEY.body("/v1/messages", "r1") == {
        "type": "error",
        "error": {"type": "authentication_error", "message": "no key"},
        "request_id": "r1",
    }


def test_it_is_one_whole_response() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"path": "/v1/models", "state": {"request_id": "r1"}}
    asyncio.run(send_refusal(scope, send, NO_KEY))
    start, body = sent
    headers = dict(start["headers"])
    assert start["status"] == 401
    assert headers[b"connection"] == b"close" and headers[b"www-authenticate"] == b"Bearer"
    assert int(headers[b"content-length"]) == len(body["body"])
    assert json.loads(body["body"])["error"]["message"] == "no key"
