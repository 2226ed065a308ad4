from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.text.pieces import ContentPiece, Piece, ToolArguments, ToolCallEnd, ToolCallStart
from firstword.text.tools.calls import CallParser, CallSyntax
from firstword.text.tools.json_format import JsonFormat
from tests.text.tools.answers import FORMATS, NAMES, answers, cuts_of, parse

EVERYTHING = CallSyntax(
    tags={"<tool_call>": "</tool_call>", "<|python_tag|>": ""},
    fences=("json", ""),
    bare=True,
    separators=";,",
)


def read(text: str, syntax: CallSyntax = EVERYTHING, *, parallel: bool = True) -> list[Piece]:
    whole = parse(CallParser(syntax, ["f", "g"], "c{}".format, parallel=parallel), text)
    by_character = parse(CallParser(syntax, ["f", "g"], "c{}".format, parallel=parallel), *text)
    assert whole == by_character
    return whole


def call(index: int, name: str, arguments: str) -> list[Piece]:
    return [
        ToolCallStart(index, f"c{index}", name),
        ToolArguments(index, arguments),
        ToolCallEnd(index),
    ]


@st.composite
def chunked(draw: st.DrawFn) -> tuple[JsonFormat, str, list[str]]:
    form = draw(st.sampled_from(FORMATS))
    text = draw(answers(form))
    return form, text, draw(cuts_of(text))


@given(chunked())
def test_p29_streamed_calls_are_those_of_the_whole_text(
    case: tuple[JsonFormat, str, list[str]],
) -> None:
    form, text, chunks = case
    whole = parse(form.parser(NAMES, "c{}".format), text)
    assert parse(form.parser(NAMES, "c{}".format), *chunks) == whole
    assert parse(form.parser(NAMES, "c{}".format), *text) == whole
    written: dict[int, str] = {}
    for piece in whole:
        if isinstance(piece, ToolArguments):
            written[piece.index] = written.get(piece.index, "") + piece.text
        if isinstance(piece, ToolCallEnd) and piece.is_whole:
            assert isinstance(json.loads(written[piece.index]), dict)
    assert sorted(written) == list(range(len(written)))


@given(chunked())
def test_nothing_is_lost_or_reordered(case: tuple[JsonFormat, str, list[str]]) -> None:
    form, text, _ = case
    at = 0
    for piece in parse(form.parser(NAMES, "c{}".format), text):
        if isinstance(piece, ContentPiece | ToolArguments):
            found = text.find(piece.text, at)
            assert found >= 0 or piece.text == "{}"
            at = max(at, found)
    if not any(name in text for name in NAMES):
        assert parse(form.parser(NAMES, "c{}".format), text) == [ContentPiece(text)][: len(text)]


def test_calls_between_tags() -> None:
    text = (
        'Hi.\n<tool_call>\n{"name": "f", "arguments": {"a": "}</tool_call>"}}\n</tool_call>\n'
        '<tool_call>{"name": "g", "arguments": {}}</tool_call>\n\nBye'
    )
    assert read(text) == [
        ContentPiece("Hi."),
        *call(0, "f", '{"a": "}</tool_call>"}'),
        *call(1, "g", "{}"),
        ContentPiece("\n\nBye"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        ' \n{"name": "f", "parameters": {"a": 1}},\n{"parameters": {}, "name": "g"}\n',
        '<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}',
        '[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]',
        '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n{"name": "g"}\n</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"a": 1}}\n<tool_call>{"name": "g"}',
        '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><tool_call>{"name": "g"}</tool',
        '```json\n{"name": "f", "arguments": {"a": 1}}\n```\n```\n{"name": "g"}\n```',
    ],
)
def test_ways_to_write_two_calls(text: str) -> None:
    assert read(text) == [*call(0, "f", '{"a": 1}'), *call(1, "g", "{}")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "a < b, <tool",
        "<tool_call>",
        "<tool_call>\n{",
        '<tool_call>\n{"name": "h", "arguments": {}}\n</tool_call>',
        "<tool_call>f(x)</tool_call>",
        "<tool_call>[]</tool_call>",
        '{"name": "h", "arguments": {"name": "f"}}',
        '{"tools": [\n{"name": "f", "arguments": {}}\n]}',
        '[1,\n{"name": "f", "arguments": {}}]',
        'It is {"name": "f", "arguments": {}}',
        '{"name": "f", "arguments": "x"}\n',
        "{ and [ and {",
        '```json\n{"a": 1}\n```',
        "[{]",
    ],
)
def test_all_else_is_content(text: str) -> None:
    assert read(text) == [ContentPiece(text)][: len(text)]


def test_without_bare_calls_only_marks_open_them() -> None:
    text = '{"name": "f", "arguments": {}}'
    tags = CallSyntax(tags={"<tool_call>": "</tool_call>"})
    assert read(text, tags) == [ContentPiece(text)]
    assert read(f"<tool_call>{text}</tool_call>", tags) == call(0, "f", "{}")


def test_a_broken_call_says_so_and_goes_on_as_content() -> None:
    start = [ToolCallStart(0, "c0", "f")]
    cut = [*start, ToolArguments(0, '{"a": "x'), ToolCallEnd(0, is_whole=False)]
    assert read('{"name": "f", "arguments": {"a": "x') == cut
    assert read('{"name": "f", "arguments": {"a": x}}') == [
        *start,
        ToolArguments(0, '{"a": '),
        ToolCallEnd(0, is_whole=False),
        ContentPiece("x}}"),
    ]


def test_what_follows_whole_arguments_is_kept_if_it_is_not_the_end_of_the_call() -> None:
    begun = '{"name": "f", "arguments": {}'
    assert read(begun) == read(begun + "\n") == read(begun + "}") == call(0, "f", "{}")
    assert read(begun + ', "id": 1}') == call(0, "f", "{}")
    assert read(begun + "\nHello") == [*call(0, "f", "{}"), ContentPiece("\nHello")]


def test_unknown_calls_of_an_array_are_content() -> None:
    text = '[{"name": "f"}, {"name": "h"}, {"name": "g"}]'
    assert read(text) == [
        *call(0, "f", "{}"),
        ContentPiece(', {"name": "h"}'),
        *call(1, "g", "{}"),
    ]


def test_only_one_call_where_they_are_not_parallel() -> None:
    assert read('{"name": "f"}; {"name": "g"}', parallel=False) == [
        *call(0, "f", "{}"),
        ContentPiece('; {"name": "g"}'),
    ]


def test_arguments_are_streamed_as_they_come() -> None:
    parser = CallParser(EVERYTHING, ["f"], "c{}".format)
    assert parser.push('<tool_call>{"name": "f", "argu') == []
    assert parser.push('ments": {"a": "b') == [
        ToolCallStart(0, "c0", "f"),
        ToolArguments(0, '{"a": "b'),
    ]
    assert parser.push("c") == [ToolArguments(0, "c")]
    assert parser.push('"}}') == [ToolArguments(0, '"}'), ToolCallEnd(0)]
    assert parser.push("</tool_call>") == parser.finish() == []


def test_only_what_may_become_a_call_is_held_back() -> None:
    parser = CallParser(EVERYTHING, ["f"], "c{}".format)
    assert parser.push("Hello <") == [ContentPiece("Hello")]
    assert parser.push("b") == [ContentPiece(" <b")]
    assert parser.push('\n{"x') == []
    assert parser.push('": 1') == [ContentPiece('\n{"x": 1')]
    assert parser.push(", 2") == [ContentPiece(", 2")]
