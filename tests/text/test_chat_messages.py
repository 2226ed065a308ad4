from __future__ import annotations

import pytest

from firstword.errors import ChatTemplateError
from firstword.text.chat_messages import check_messages
from firstword.text.chat_template import ChatTemplate
from tests.text.templates import CHATML, GEMMA, LLAMA3, QWEN, TEXT_ARGUMENTS
from tests.text.tools.answers import WEATHER

TOOLS = [WEATHER.for_template()]


Message = dict[str, object]


def call(number: int, arguments: object) -> dict[str, object]:
    return {"id": f"c{number}", "function": {"name": "get_weather", "arguments": arguments}}


def result(number: int, content: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": content}


USER: Message = {"role": "user", "content": "Weather?"}
KIND: Message = {"role": "system", "content": "Be kind."}
ROME, OSLO = {"city": "Rome"}, {"city": "Oslo"}
CALLS: list[Message] = [
    USER,
    {"role": "assistant", "content": None, "tool_calls": [call(0, ROME), call(1, OSLO)]},
    result(1, "cold"),
    result(0, "hot"),
]


def render(source: str, messages: list[Message], tools: object = None) -> str:
    return ChatTemplate(source).render(messages, tools=tools)


def tagged(arguments: str) -> str:
    call = f'{{"name": "get_weather", "arguments": {arguments}}}'
    return f"<tool_call>\n{call}\n</tool_call>"


@pytest.mark.parametrize("source", [QWEN, TEXT_ARGUMENTS])
@pytest.mark.parametrize("arguments", [ROME, '{"city": "Rome"}'])
def test_arguments_come_as_the_template_wants_them(source: str, arguments: object) -> None:
    messages: list[Message] = [USER, {"role": "assistant", "tool_calls": [call(0, arguments)]}]
    assert tagged('{"city": "Rome"}') in render(source, messages)


def test_calls_and_results_of_templates_that_know_them() -> None:
    assert render(QWEN, CALLS) == (
        "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n\n"
        + "\n".join(map(tagged, ['{"city": "Rome"}', '{"city": "Oslo"}']))
        + "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\ncold\n</tool_response><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nhot\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_parallel_calls_come_one_by_one_where_they_must() -> None:
    text = render(LLAMA3, [*CALLS[:2], *CALLS[2:], result(7, "odd")])
    order = [text.index(word) for word in ("Rome", '"hot"', "Oslo", '"cold"', '"odd"')]
    assert order == sorted(order)


@pytest.mark.parametrize("source", [CHATML, GEMMA])
def test_calls_and_results_as_words_of_assistant_and_user(source: str) -> None:
    messages: list[Message] = [*CALLS, {"role": "user", "content": "Sure?"}]
    text = render(source, messages)
    assert '"Rome"' in text
    answers = "<tool_response>\ncold\n</tool_response>\n<tool_response>\nhot\n</tool_response>"
    assert f"user\n{answers}\n\nSure?<" in text
    assert "get_weather" in text


def test_results_get_the_names_of_their_calls() -> None:
    template = "{% for m in messages %}{{ m.content }}{{ m.name }};{% endfor %}" + QWEN
    assert "coldget_weather;" in render(template, CALLS)
    assert "given;" in render(template, [*CALLS[:2], {**result(0, ""), "name": "given"}])


def test_tools_are_told_by_templates_that_can() -> None:
    assert render(QWEN, [USER], tools=TOOLS).count("get_weather") == 1
    assert render(QWEN, [USER], tools=TOOLS).startswith("<|im_start|>system\n<tools>")


def test_tools_are_told_in_the_system_message_otherwise() -> None:
    text = render(CHATML, [USER], tools=TOOLS)
    assert text.startswith("<|im_start|>system\nYou can call")
    assert text.count("get_weather") == 1
    text = render(CHATML, [KIND, USER], tools=TOOLS)
    assert text.startswith("<|im_start|>system\nBe kind.\n\nYou can call")
    assert render("{{ 'given' if tools }}" + CHATML, [USER], tools=TOOLS) == render(
        CHATML, [USER], tools=TOOLS
    )


def test_system_words_come_before_the_user_s_where_there_is_no_system_role() -> None:
    text = render(GEMMA, [KIND, USER], tools=TOOLS)
    assert text.startswith("<start_of_turn>user\nBe kind.\n\nYou have access")
    assert text.endswith("\n\nWeather?<end_of_turn>\n<start_of_turn>model\n")
    assert render(GEMMA, [KIND]).startswith("<start_of_turn>user\nBe kind.<end_of_turn>")


def test_developers_are_the_system_where_they_are_not_known() -> None:
    kind = KIND | {"role": "developer"}
    assert render(CHATML, [kind, USER]).startswith("<|im_start|>system\nBe kind.")
    knows = CHATML + "{# developer #}"
    assert render(knows, [kind, USER]).startswith("<|im_start|>developer\nBe kind.")


def test_reasoning_is_left_to_the_template() -> None:
    thought: Message = {"role": "assistant", "content": "Hot.", "reasoning_content": "hm"}
    assert "<think>hm</think>Hot." in render(QWEN, [USER, thought])


def test_refusals_name_the_message_as_it_was_given() -> None:
    with pytest.raises(ChatTemplateError, match=r"message 2\): roles must alternate"):
        render(GEMMA, [KIND, USER, USER])


@pytest.mark.parametrize(
    ("calls", "problem"),
    [
        ("x", r"message 1: tool_calls must be a list, found str"),
        ([1], r"message 1: tool_calls\[0\] must be a mapping"),
        ([{"function": "f"}], r"tool_calls\[0\] must be a mapping"),
        ([call(0, {}), {"function": {"name": 1}}], r"tool_calls\[1\]: function.name must be"),
        ([call(0, "{")], r"tool_calls\[0\]: function.arguments must be an object"),
        ([call(0, "[" * 100_000)], "function.arguments must be an object"),
        ([call(0, "[]")], "function.arguments must be an object"),
        ([call(0, None)], "function.arguments must be an object"),
    ],
)
def test_malformed_calls_are_named(calls: object, problem: str) -> None:
    with pytest.raises(ChatTemplateError, match=problem):
        check_messages([USER, {"role": "assistant", "tool_calls": calls}])


def test_content_is_needed_where_nothing_is_called() -> None:
    with pytest.raises(ChatTemplateError, match="message 0: content must be a string, found None"):
        check_messages([{"role": "assistant", "content": None, "tool_calls": []}])


def test_messages_are_not_changed() -> None:
    before = [dict(message) for message in CALLS]
    render(LLAMA3, CALLS, tools=TOOLS)
    assert before == CALLS
