from __future__ import annotations

import pytest

from firstword.text.tools.call_object import CallObject


def read(text: str) -> CallObject:
    call = CallObject({"f"})
    for character in text:
        call.push(character)
    return call


def test_a_call_begins_when_name_and_arguments_have() -> None:
    begun = '{"name": "f", "arguments": {'
    assert not read(begun[:-1]).has_begun
    call = read(begun)
    assert (call.name, call.has_begun, call.has_all_arguments) == ("f", True, False)
    assert call.take_arguments() == "{"
    for character in '"a": [{}]}':
        call.push(character)
    assert call.has_all_arguments
    assert not call.is_closed
    assert call.take_arguments() == '"a": [{}]}'
    call.push("}")
    assert call.is_closed
    assert call.take_arguments() == ""


def test_arguments_before_the_name_wait_for_it() -> None:
    call = read('{ "parameters" : {"a": 1} , "name"')
    assert not call.has_begun
    for character in ': "f"':
        call.push(character)
    assert call.has_begun
    assert call.has_all_arguments
    assert call.take_arguments() == '{"a": 1}'


@pytest.mark.parametrize("text", ['{"name": "f"}', '{"type": "function", "id": 1, "name": "f"}'])
def test_no_arguments_are_an_empty_object(text: str) -> None:
    call = read(text)
    assert call.has_all_arguments
    assert (call.take_arguments(), call.take_arguments()) == ("{}", "")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"name": "g"',
        '{"name": 1',
        '{"name": [',
        '{"city"',
        '{"name": "f", "arguments": "',
        '{"arguments": n',
        '{"name": "f", "name"',
        '{"arguments": {}, "parameters"',
        '{"type": "function"}',
    ],
)
def test_other_objects_are_known_as_soon_as_possible(text: str) -> None:
    assert read(text).is_no_call
    assert not read(text[:-1]).is_no_call


def test_names_may_be_escaped() -> None:
    assert read('{"n\\u0061me": "\\u0066", "arguments": {').name == "f"


def test_what_is_no_json_is_broken() -> None:
    assert read('{"name": "f", "arguments": {"a": x').is_broken
    assert not read('{"name": "f", "arguments": {"a": 1').is_broken
