from __future__ import annotations

import json

import pytest

from firstword.text.tools.json_format import JsonFormat
from tests.text.tools.answers import FORMATS, TOOLS, WEATHER


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_instructions_show_every_tool_as_json(form: JsonFormat) -> None:
    tools = [tool.for_template() for tool in TOOLS]
    text = form.instructions(tools)
    assert [json.loads(line) for line in text.splitlines() if line.startswith('{"type"')] == tools
    assert f'"{form.layout.arguments}"' in text
    assert "{tools}" not in text


def test_braces_of_tools_are_not_placeholders() -> None:
    odd = {"type": "function", "function": {"name": "{tools}", "description": "{0} {x}"}}
    assert json.dumps(odd) in FORMATS[0].instructions([odd])


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_written_calls_hold_the_arguments_as_given(form: JsonFormat) -> None:
    assert '{"city":  "Rome"}' in form.written(WEATHER.name, '{"city":  "Rome"}')
