from __future__ import annotations

import pytest

from firstword.text.pieces import ContentPiece, ToolArguments, ToolCallEnd, ToolCallStart
from firstword.text.tools.gemma import gemma
from tests.text.tools.answers import NAMES, parse


@pytest.mark.parametrize("language", ["tool_code", "json", "tool_call", ""])
def test_calls_may_be_fenced(language: str) -> None:
    call = gemma().written("get", '{"zone": "UTC"}')
    expected = [ToolCallStart(0, "c0", "get"), ToolArguments(0, '{"zone": "UTC"}'), ToolCallEnd(0)]
    assert parse(gemma().parser(NAMES, "c{}".format), call) == expected
    fenced = f"```{language}\n{call}\n```\n"
    assert parse(gemma().parser(NAMES, "c{}".format), fenced) == expected


def test_other_blocks_are_content() -> None:
    for text in ("```python\nget()\n```", "```json\n{}\n```", "a ```json\n[1]\n```"):
        assert parse(gemma().parser(NAMES, str), text) == [ContentPiece(text)]
