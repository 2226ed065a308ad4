from __future__ import annotations

import pytest

from firstword.text.pieces import ContentPiece, ToolArguments, ToolCallEnd, ToolCallStart
from firstword.text.tools.llama3 import llama3
from tests.text.tools.answers import NAMES, parse


@pytest.mark.parametrize("mark", ["", "<|python_tag|>", "\n\n"])
def test_calls_are_bare_json_separated_by_semicolons(mark: str) -> None:
    form = llama3()
    call = form.written("get", '{"zone": "UTC"}')
    assert call == '{"name": "get", "parameters": {"zone": "UTC"}}'
    assert parse(form.parser(NAMES, "c{}".format), f"{mark}{call}; {call}") == [
        ToolCallStart(0, "c0", "get"),
        ToolArguments(0, '{"zone": "UTC"}'),
        ToolCallEnd(0),
        ToolCallStart(1, "c1", "get"),
        ToolArguments(1, '{"zone": "UTC"}'),
        ToolCallEnd(1),
    ]


def test_fences_and_tags_are_content() -> None:
    text = '<tool_call>{"name": "get", "parameters": {}}'
    assert parse(llama3().parser(NAMES, str), text) == [ContentPiece(text)]
    assert not llama3().needs_special
