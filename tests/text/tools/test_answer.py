from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from firstword.text.pieces import (
    ContentPiece,
    Piece,
    ReasoningPiece,
    ToolArguments,
    ToolCallEnd,
    ToolCallStart,
    merged,
)
from firstword.text.reasoning import ReasoningFormat
from firstword.text.tools.answer import AnswerParser
from firstword.text.tools.generic import generic
from tests.text.tools.answers import NAMES, no_control

THINK = ReasoningFormat("<think>", "</think>")
CALL = '<tool_call>\n{"name": "get", "arguments": {"a": 1}}\n</tool_call>'
TEXT = f"<think>\nhm {CALL}\n</think>\n\nSo:\n{CALL}"


def parse(parser: AnswerParser, *chunks: str) -> list[Piece]:
    pieces = [piece for chunk in chunks for piece in parser.push(chunk, 1)]
    return merged([*pieces, *parser.finish()])


def answer_parser() -> AnswerParser:
    return AnswerParser(reasoning=THINK, tools=generic(no_control), names=NAMES)


def test_reasoning_then_text_then_calls() -> None:
    expected = [
        ReasoningPiece(f"hm {CALL}"),
        ContentPiece("So:"),
        ToolCallStart(0, "call_0", "get"),
        ToolArguments(0, '{"a": 1}'),
        ToolCallEnd(0),
    ]
    assert parse(answer_parser(), TEXT) == parse(answer_parser(), *TEXT) == expected


@given(st.lists(st.integers(0, len(TEXT)), max_size=10).map(sorted), st.integers(0, len(TEXT)))
def test_p29_chunks_and_cuts_do_not_matter(places: list[int], end: int) -> None:
    text = TEXT[:end]
    chunks = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    assert parse(answer_parser(), *chunks) == parse(answer_parser(), text)


def test_without_reasoning_and_tools_all_is_content() -> None:
    assert parse(AnswerParser(), *TEXT) == [ContentPiece(TEXT)]
    assert parse(AnswerParser(), "") == []


def test_call_ids_are_the_caller_s() -> None:
    parser = AnswerParser(tools=generic(no_control), names=NAMES, call_id=lambda i: f"r7-{i}")
    assert parse(parser, CALL)[0] == ToolCallStart(0, "r7-0", "get")


def count(*chunks: str, inside: bool = False) -> int:
    parser = AnswerParser(reasoning=THINK, inside_reasoning=inside)
    parse(parser, *chunks)
    return parser.num_reasoning_tokens


def test_tokens_of_reasoning_are_counted_with_its_marks() -> None:
    assert count("<think>", "\n", "hm", "</think>", "\n", "Yes") == 4
    assert count("<", "think>", "hm", "</", "think>", "Yes", ".") == 5
    assert count("\n", "hm", "</think>", "Yes", inside=True) == 3
    assert count("<", "b>", "Yes") == 0
    assert count("<think>hm</think>Yes", ".") == 1
    assert count("<think>", "hm") == 2
