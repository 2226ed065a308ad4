"""Where an error of a body is, and what the OpenAPI page says of bodies."""

from __future__ import annotations

import json

import pytest

from firstword.server.bodies import openapi_body, path, validate
from firstword.server.errors import RequestError
from firstword.server.openai.schema import ChatBody, CompletionBody


def test_places_are_written_as_people_write_them() -> None:
    location = ("messages", 2, "content", "list[ContentPart]", 0, "type")
    assert path(location) == "messages[2].content[0].type"
    assert path(("prompt", "Texts", 1)) == "prompt[1]"


def test_missing_and_unknown_fields_have_codes_of_their_own() -> None:
    with pytest.raises(RequestError) as missing:
        validate(ChatBody, {"model": "m"})
    assert (missing.value.param, missing.value.code) == ("messages", "missing_required_parameter")
    options = {"stream_options": {"x": 1}}
    with pytest.raises(RequestError) as unknown:
        validate(CompletionBody, {"model": "m", "prompt": "a"} | options)
    assert unknown.value.param == "stream_options.x"
    assert unknown.value.code == "unknown_parameter"


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(RequestError) as caught:
        validate(ChatBody, {"model": ["x" * 10_000], "messages": []})
    assert len(str(caught.value)) < 300


def test_openapi_body_stands_alone() -> None:
    body = openapi_body(ChatBody, ["user"])
    assert "$ref" not in json.dumps(body)
    assert '"user": {"description": "Inert."}' in json.dumps(body)
