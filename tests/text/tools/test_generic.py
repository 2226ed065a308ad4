from __future__ import annotations

import pytest

from firstword.text.pieces import ToolArguments, ToolCallEnd, ToolCallStart
from firstword.text.tools.generic import generic
from tests.text.tools.answers import NAMES, no_control, parse, tags_are_control

CALL = '{"name": "get", "arguments": {}}'


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"[{CALL}]",
        f"<tool_call>{CALL}</tool_call>",
        f"<tool_call>\n[{CALL}]\n</tool_call>",
        f"```json\n{CALL}\n```",
        f"```\n[\n  {CALL}\n]\n```",
    ],
)
def test_calls_in_many_dresses(text: str) -> None:
    assert parse(generic(no_control).parser(NAMES, "c{}".format), text) == [
        ToolCallStart(0, "c0", "get"),
        ToolArguments(0, "{}"),
        ToolCallEnd(0),
    ]


def test_models_are_asked_for_tags() -> None:
    assert generic(no_control).written("get", "{}") == f"<tool_call>\n{CALL}\n</tool_call>"
    assert generic(tags_are_control).needs_special
