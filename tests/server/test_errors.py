"""The table of errors: statuses, the two APIs' bodies, and what is not told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from firstword import errors
from firstword.server.disconnect import ClientGoneError
from firstword.server.errors import (
    INTERNAL,
    KEY_QUEUE_FULL,
    KINDS,
    MAX_MESSAGE,
    RequestError,
    answers_errors,
    anthropic_response,
    openai_response,
    report,
)

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def test_nearest_class_counts() -> None:
    assert report(errors.PromptTooLongError(9, 5)).kind.code == "context_length_exceeded"
    assert report(errors.ConfigError("x")).kind.code == "invalid_value"
    assert report(errors.UnsupportedModelError("f", "w", "p")).kind is INTERNAL


def test_other_exceptions_tell_nothing_of_themselves() -> None:
    told = report(KeyError("secret"))
    assert told.kind is INTERNAL
    assert "secret" not in told.message


def test_full_queue_says_whose_it_is_and_when_to_come_again() -> None:
    everyone = report(errors.QueueFullError("full", 2.2))
    assert (everyone.kind.status, everyone.headers) == (503, {"retry-after": "3"})
    one = report(errors.QueueFullError("full", 0.1, key_only=True))
    assert (one.kind, one.headers) == (KEY_QUEUE_FULL, {"retry-after": "1"})


def test_p28_grammar_errors_name_their_pointer() -> None:
    told = report(errors.GrammarError("is not supported", "/properties/a/pattern"))
    assert told.kind.status == 400
    assert told.message.startswith("/properties/a/pattern")


def test_bodies_of_both_apis() -> None:
    error = RequestError("n is 0", "n")
    openai, anthropic = openai_response(error), anthropic_response(error)
    assert (openai.status_code, anthropic.status_code) == (400, 400)
    assert json.loads(bytes(openai.body)) == {
        "error": {
            "message": "n is 0",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }
    assert json.loads(bytes(anthropic.body)) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "n is 0"},
    }


def test_messages_can_always_be_written() -> None:
    told = report(RequestError("\ud800" + "x" * 10_000, "\udfff"))
    assert len(told.message) == MAX_MESSAGE
    json.dumps(told.openai(), ensure_ascii=False).encode()


def test_page_shows_the_table() -> None:
    for error, kind in KINDS.items():
        row = f"| {error.__name__} | {kind.status} | `{kind.openai_type}` | `{kind.code}` |"
        assert row in PAGE


@pytest.mark.parametrize(
    ("error", "status"), [(RequestError("x"), 400), (KeyError("x"), 500), (ClientGoneError(), 499)]
)
def test_endpoints_answer_their_errors(error: Exception, status: int) -> None:
    async def fail(request: Request) -> Response:
        raise error

    request = Request({"type": "http", "headers": []})
    response = asyncio.run(answers_errors(fail, openai_response)(request))
    assert response.status_code == status
