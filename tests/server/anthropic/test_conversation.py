from __future__ import annotations

from typing import Any

import pytest

from firstword.engine.request import RequestOptions
from firstword.sampling.params import Grammar
from firstword.server.anthropic.conversation import chat_request, messages
from firstword.server.anthropic.schema import MessageBody
from firstword.server.bodies import validate
from firstword.server.chat import ChatRequest
from firstword.server.errors import RequestError, UnsupportedFieldError
from firstword.text.tools.spec import NamedTool

USER = {"role": "user", "content": "Hi"}
CALL = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "18 degrees"}
WEATHER = {
    "name": "weather",
    "description": "of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def body_of(*turns: dict[str, Any], **fields: Any) -> MessageBody:
    given = {"model": "m", "max_tokens": 10, "messages": list(turns or (USER,)), **fields}
    return validate(MessageBody, given)


def request_of(**fields: Any) -> ChatRequest:
    return chat_request(body_of(**fields), "r", RequestOptions())


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_text_and_blocks_are_one() -> None:
    assert messages(body_of(USER)) == messages(body_of(user(text("Hi"))))
    assert messages(body_of(USER)) == [{"role": "user", "content": "Hi"}]


def test_system_comes_first_and_its_blocks_are_paragraphs() -> None:
    body = body_of(USER, system=[text("Be brief."), {**text("Be kind."), "cache_control": None}])
    assert messages(body)[0] == {"role": "system", "content": "Be brief.\n\nBe kind."}
    assert messages(body_of(USER, system="Be brief."))[0]["content"] == "Be brief."


def test_turns_of_one_role_become_one() -> None:
    assert messages(body_of(USER, USER)) == [{"role": "user", "content": "Hi\n\nHi"}]
    turns = messages(body_of(USER, assistant(text("A")), assistant(text("B"), CALL), user(RESULT)))
    assert turns[1]["content"] == "AB"
    assert turns[1]["tool_calls"]


def test_calls_of_two_turns_in_a_row_are_kept_in_order() -> None:
    second = {**CALL, "id": "c2"}
    turns = messages(body_of(USER, assistant(CALL), assistant(second), USER))
    calls = turns[1]["tool_calls"]
    assert isinstance(calls, list)
    assert [call["id"] for call in calls] == ["c1", "c2"]


def test_a_call_and_its_result() -> None:
    turns = messages(
        body_of(USER, assistant(text("Let me see."), CALL), user(RESULT, text("And now?")))
    )
    function = {"name": "weather", "arguments": {"city": "Rome"}}
    assert turns[1:] == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "18 degrees", "tool_call_id": "c1", "name": "weather"},
        {"role": "user", "content": "And now?"},
    ]


def test_a_result_of_blocks_and_one_that_is_an_error() -> None:
    blocks = {**RESULT, "content": [text("a"), text("b")], "is_error": True}
    assert messages(body_of(USER, assistant(CALL), user(blocks)))[2]["content"] == "Error: a\n\nb"
    empty = {"type": "tool_result", "tool_use_id": "c1"}
    assert messages(body_of(USER, assistant(CALL), user(empty)))[2]["content"] == ""


def test_thinking_of_earlier_answers_is_given_back() -> None:
    thought = {"type": "thinking", "thinking": "Hmm.", "signature": ""}
    turn = messages(body_of(USER, assistant(thought, text("Yes.")), USER))[1]
    assert turn == {"role": "assistant", "content": "Yes.", "reasoning_content": "Hmm."}


def test_an_image_is_refused_by_name() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    with pytest.raises(RequestError, match=r"messages\[0\].content\[1\].*image.*not"):
        body_of(user(text("What is it?"), image))


def test_an_image_in_a_result_is_refused_by_name() -> None:
    image = {"type": "image", "source": {}}
    with pytest.raises(RequestError, match=r"messages\[2\].content\[0\].content\[0\].*image"):
        body_of(USER, assistant(CALL), user({**RESULT, "content": [image]}))


def test_errors_name_the_field_of_a_block() -> None:
    with pytest.raises(RequestError) as caught:
        body_of(USER, assistant({"type": "tool_use", "id": "c1", "input": {}}), USER)
    assert caught.value.param == "messages[1].content[0].name"


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        ((USER, assistant(text("Yes"))), r"messages\[1\] is the assistant's.*prefill"),
        ((user(CALL),), r"messages\[0\].content\[0\] is of type 'tool_use'"),
        ((USER, assistant(RESULT), USER), r"messages\[1\].content\[0\] is of type 'tool_result'"),
        ((user(RESULT),), r"messages\[0\].content\[0\].tool_use_id is 'c1'"),
    ],
)
def test_what_does_not_belong_is_refused(turns: tuple[dict[str, Any], ...], problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        messages(body_of(*turns))


def test_prefill_counts_as_unsupported() -> None:
    with pytest.raises(UnsupportedFieldError):
        messages(body_of(USER, assistant(text("Yes"))))


def test_sampling() -> None:
    params = request_of(temperature=0.5, top_k=3, top_p=0.9, stop_sequences=["END"]).params
    assert (params.temperature, params.top_k, params.top_p) == (0.5, 3, 0.9)
    assert (params.stop, params.max_tokens, params.n) == (("END",), 10, 1)
    assert request_of().params.temperature == 1
    assert 0 < request_of(top_p=0).params.top_p < 1e-9


@pytest.mark.parametrize(
    "fields", [{"temperature": 1.1}, {"temperature": -0.1}, {"max_tokens": 0}, {"top_k": -1}]
)
def test_values_out_of_range_are_refused_by_name(fields: dict[str, float]) -> None:
    with pytest.raises(RequestError, match=next(iter(fields))):
        body_of(**fields)


def test_max_tokens_is_required() -> None:
    with pytest.raises(RequestError, match="max_tokens is missing"):
        validate(MessageBody, {"model": "m", "messages": [USER]})


def test_tools_and_choices() -> None:
    request = request_of(tools=[WEATHER])
    assert (request.tools[0].name, request.tools[0].description) == ("weather", "of a city")
    assert (request.tool_choice, request.parallel_tool_calls) == ("auto", True)
    choice = {"type": "any", "disable_parallel_tool_use": True}
    request = request_of(tools=[WEATHER], tool_choice=choice)
    assert (request.tool_choice, request.parallel_tool_calls) == ("required", False)
    assert request_of(tools=[WEATHER], tool_choice={"type": "none"}).tool_choice == "none"
    named = {"type": "tool", "name": "weather"}
    assert request_of(tools=[WEATHER], tool_choice=named).tool_choice == NamedTool("weather")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"tools": [{**WEATHER, "input_schema": {}}]}, r"tools[0].input_schema"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, None),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
    ],
)
def test_what_cannot_be_met_is_refused_by_name(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        request_of(**fields)
    assert param is None or caught.value.param == param


def test_the_model_thinks_only_when_asked() -> None:
    assert request_of().variables == {"enable_thinking": False}
    assert request_of(thinking={"type": "disabled"}).variables == {"enable_thinking": False}
    assert request_of(thinking={"type": "adaptive"}).variables == {"enable_thinking": True}
    enabled = {"type": "enabled", "budget_tokens": 1024}
    assert request_of(thinking=enabled, max_tokens=2000).variables == {"enable_thinking": True}


def test_a_schema_holds_the_answer() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    request = request_of(output_config={"format": form})
    assert request.params.grammar == Grammar("json_schema", '{"type": "object"}')
