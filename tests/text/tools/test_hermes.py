from __future__ import annotations

from firstword.text.pieces import ContentPiece, ToolArguments, ToolCallEnd, ToolCallStart
from firstword.text.tools.hermes import hermes
from tests.text.tools.answers import NAMES, no_control, parse, tags_are_control

CALL = '<tool_call>\n{"name": "get", "arguments": {"zone": "UTC"}}\n</tool_call>'


def test_calls_are_json_between_tags() -> None:
    form = hermes(no_control)
    assert form.written("get", '{"zone": "UTC"}') == CALL
    assert parse(form.parser(NAMES, "c{}".format), f"I look.\n{CALL}\n{CALL}") == [
        ContentPiece("I look."),
        ToolCallStart(0, "c0", "get"),
        ToolArguments(0, '{"zone": "UTC"}'),
        ToolCallEnd(0),
        ToolCallStart(1, "c1", "get"),
        ToolArguments(1, '{"zone": "UTC"}'),
        ToolCallEnd(1),
    ]


def test_json_without_tags_is_content() -> None:
    bare = '{"name": "get", "arguments": {}}'
    assert parse(hermes(no_control).parser(NAMES, str), bare) == [ContentPiece(bare)]


def test_tags_may_be_control_tokens() -> None:
    form = hermes(tags_are_control)
    assert form.needs_special
    assert form.written("get", '{"zone": "UTC"}') == CALL
    grammar = form.grammar([], "none")
    assert grammar is None
    assert form.layout.control_before == "<tool_call>"
    assert not hermes(no_control).needs_special
