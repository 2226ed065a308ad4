"""Bodies: every generated one is answered or refused, never a server's fault."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstword.server.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS
from firstword.server.openai.schema import ChatBody, CompletionBody
from tests.server.openai.api import CHAT, HELLO, TEXT, Api

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from([2**70, -1, "\ud800", "auto", "text", 0.5]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
NAMES = sorted({field.name for field in (*CHAT_FIELDS, *COMPLETION_FIELDS)} - {"stream"})


def as_bytes(body: object) -> bytes:
    """As Python's own json writes it: NaN, Infinity and lone surrogates as they are."""
    return json.dumps(body).encode()


def answer(path: str, body: bytes, api: Api) -> int:
    response = api.request("POST", path, content=body, headers={"content-type": "application/json"})
    if response.status_code != 200:
        error = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
    return response.status_code


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=4), st.sampled_from([CHAT, TEXT]))
def test_p27_any_fields_are_answered_or_refused(fields: dict[str, object], path: str) -> None:
    given = {"model": "fake:1m", "n": 1} | (
        {"messages": HELLO} if path == CHAT else {"prompt": "a"}
    )
    assert answer(path, as_bytes(given | fields), API) in (200, 400, 404)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), JSON)))
def test_p27_any_messages_are_answered_or_refused(messages: list[object]) -> None:
    body = as_bytes({"model": "fake:1m", "messages": messages})
    assert answer(CHAT, body, API) in (200, 400)


API = Api()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"temperature": NaN}',
        b'{"temperature": 1e999}',
        b'{"n": ' + b"9" * 5000 + b"}",
        b'{"n": ' + b"9" * 4000 + b"}",
        b'{"metadata": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"metadata": ' + b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"}",
        b'{"model": "fake:1m", "messages": [], "messages": 1}',
    ],
    ids=lambda body: repr(body[:24]),
)
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_p27_hostile_bodies_are_a_400(body: bytes, path: str) -> None:
    assert answer(path, body, API) == 400
    assert API.post(path).status_code == 200  # the next request is served


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_content_types_are_refused(content_type: str) -> None:
    headers = {"content-type": content_type}
    response = Api().request("POST", CHAT, content=b"{}", headers=headers)
    assert response.status_code == 415


def test_prompts_however_they_are_given() -> None:
    def prompts(value: object) -> object:
        return CompletionBody.model_validate({"model": "m", "prompt": value}).prompts

    assert prompts("a") == ["a"]
    assert prompts([1, 2]) == [[1, 2]]
    assert prompts(["a", "b"]) == ["a", "b"]
    assert prompts([[1], [2, 3]]) == [[1], [2, 3]]


def test_answers_can_be_sent_back() -> None:
    message = API.whole(CHAT)["choices"][0]["message"]
    extra = {"annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    ChatBody.model_validate({"model": "m", "messages": [*HELLO, message | extra]})
