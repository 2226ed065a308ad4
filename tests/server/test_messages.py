"""Conversations as chat templates read them."""

from __future__ import annotations

from typing import Any

import pytest

from firstword.server.errors import RequestError
from firstword.server.messages import normalize, template_variables, tool_specs
from firstword.server.schema import Message, Tool


def normal(*messages: dict[str, Any]) -> list[dict[str, object]]:
    return normalize([Message.model_validate(message) for message in messages])


def call(arguments: str = '{"a": 1}') -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    call = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def test_parts_are_joined_and_developer_is_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert normal({"role": "developer", "content": parts}) == [
        {"role": "system", "content": "a\nb"}
    ]


def test_calls_and_their_answers() -> None:
    tool = {"role": "tool", "content": "2", "tool_call_id": "c1"}
    assistant, answer = normal(call(), tool)
    function = {"name": "add", "arguments": {"a": 1}}
    assert assistant["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]
    assert assistant["content"] == ""
    assert answer == {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"}


def test_names_reasoning_and_refusals_are_kept() -> None:
    assert normal(
        {"role": "user", "content": "Hi", "name": "Ann"},
        {"role": "assistant", "content": "Yes", "reasoning_content": "hm"},
        {"role": "assistant", "content": None, "refusal": "No"},
    ) == [
        {"role": "user", "content": "Hi", "name": "Ann"},
        {"role": "assistant", "content": "Yes", "reasoning_content": "hm"},
        {"role": "assistant", "content": "No"},
    ]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[0].content"),
        ({"role": "assistant"}, "messages[0].content"),
        (call("{"), "messages[0].tool_calls[0].function.arguments"),
        (call("[1]"), "messages[0].tool_calls[0].function.arguments"),
        ({**call(), "role": "user"}, "messages[0].tool_calls"),
        ({"role": "tool", "content": "", "tool_call_id": "no"}, "messages[0].tool_call_id"),
        ({"role": "tool", "content": ""}, "messages[0].tool_call_id"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
    ],
)
def test_what_a_role_needs_is_named(message: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        normal(message)
    assert caught.value.param == param


def test_tools_are_told_where_their_schemas_stand() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    given = [{"name": "add", "description": "Adds.", "parameters": schema}, {"name": "now"}]
    tools = [Tool.model_validate({"type": "function", "function": one}) for one in given]
    add, now = tool_specs(tools)
    assert (add.description, add.parameters) == ("Adds.", schema)
    assert add.pointer == "/tools/0/function/parameters"
    assert now.parameters == {"type": "object", "properties": {}}
    with pytest.raises(RequestError, match="rename it") as caught:
        tool_specs([*tools, tools[0]])
    assert caught.value.param == "tools[2].function.name"


def test_variables_of_the_template() -> None:
    assert template_variables(None) == {}
    assert template_variables({"enable_thinking": False}) == {"enable_thinking": False}
    for name in ("messages", "not a name"):
        with pytest.raises(RequestError, match="not for requests to set"):
            template_variables({name: 1})
