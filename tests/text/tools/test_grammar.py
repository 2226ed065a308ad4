from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from firstword.errors import ConfigError, GrammarError
from firstword.text.pieces import ToolArguments, ToolCallStart
from firstword.text.reasoning import ReasoningFormat
from firstword.text.tools.generic import generic
from firstword.text.tools.grammar import CallLayout, arguments_schema, call_grammar
from firstword.text.tools.json_format import JsonFormat
from firstword.text.tools.spec import NamedTool, ToolSpec
from tests.text.tools.answers import CLOCK, FORMATS, NAMES, TOOLS, WEATHER, no_control, parse
from tests.text.tools.matching import accepts


def controls_of(form: JsonFormat) -> list[str]:
    return [c for c in (form.layout.control_before, form.layout.control_after) if c]


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.name}{form.needs_special:d}")
def test_every_format_writes_what_it_reads(form: JsonFormat) -> None:
    controls = controls_of(form)
    weather = form.written("get_weather", '{"city": "Rome", "days": 2}')
    clock = form.written("get", "{}")
    both = weather + form.layout.between + clock
    required = form.grammar(TOOLS, "required")
    assert required is not None
    for text in (weather, clock, both):
        assert accepts(required.text, text, controls)
        names = [
            p.name for p in parse(form.parser(NAMES, str), text) if isinstance(p, ToolCallStart)
        ]
        assert names == ["get_weather"] * (text != clock) + ["get"] * (text != weather)
    for text in ("", "Hi", weather[:-1], weather + "x", form.written("get_weather", "{}")):
        assert not accepts(required.text, text, controls)
    single = form.grammar(TOOLS, "required", False)
    named = form.grammar(TOOLS, NamedTool("get"))
    assert single is not None
    assert named is not None
    assert accepts(single.text, weather, controls)
    assert not accepts(single.text, both, controls)
    assert accepts(named.text, clock, controls)
    assert not accepts(named.text, weather, controls)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"{form.name}{form.needs_special:d}")
def test_a_model_may_think_before_it_calls(form: JsonFormat) -> None:
    think = ReasoningFormat("<think>", "</think>")
    grammar = form.grammar(TOOLS, "required", reasoning=think)
    assert grammar is not None
    clock = form.written("get", "{}")
    assert accepts(grammar.text, clock, controls_of(form))
    assert accepts(grammar.text, f"<think>\nhm\n</think>\n\n{clock}", controls_of(form))
    assert not accepts(grammar.text, f"hm{clock}", controls_of(form))


def test_nothing_holds_a_free_choice() -> None:
    assert generic(no_control).grammar(TOOLS, "auto") is None
    assert generic(no_control).grammar(TOOLS, "none") is None


def test_references_are_those_of_the_tool_s_own_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/Place"}},
        "required": ["at"],
        "$defs": {"Place": {"enum": ["here", "there"]}},
    }
    grammar = call_grammar(CallLayout("arguments"), [ToolSpec("go", "", schema)], "required", True)
    assert accepts(grammar, '{"name": "go", "arguments": {"at": "here"}}')
    assert not accepts(grammar, '{"name": "go", "arguments": {"at": "away"}}')


def test_names_are_written_as_json() -> None:
    layout = CallLayout("arguments")
    grammar = call_grammar(layout, [ToolSpec('é"\n\\')], "required", False)
    assert accepts(grammar, layout.opening('é"\n\\') + "{}" + layout.closing)
    assert json.loads(layout.opening('é"\n\\') + "{}}")["name"] == 'é"\n\\'


def test_only_listed_arguments_are_invited() -> None:
    assert arguments_schema({})["additionalProperties"] is False
    assert arguments_schema(WEATHER.parameters)["additionalProperties"] is False
    assert arguments_schema({"additionalProperties": True})["additionalProperties"] is True
    combined = arguments_schema({"anyOf": [{"properties": {"a": {}}}]})
    assert "additionalProperties" not in combined
    assert combined["type"] == "object"


def test_choices_that_cannot_be_met_are_refused() -> None:
    layout = CallLayout("arguments")
    with pytest.raises(ConfigError, match="tools is empty"):
        call_grammar(layout, [], "required", True)
    with pytest.raises(ConfigError, match=r"'when'.* they are get_weather, get"):
        call_grammar(layout, TOOLS, NamedTool("when"), True)


def test_schema_that_cannot_be_enforced_is_refused_by_its_place() -> None:
    bad = ToolSpec("go", "", {"properties": {"at": {"nullable": True}}}, "/tools/1/input_schema")
    with pytest.raises(GrammarError) as caught:
        call_grammar(CallLayout("arguments"), [CLOCK, bad], "required", True)
    assert caught.value.pointer == "/tools/1/input_schema/properties/at/nullable"
    assert call_grammar(CallLayout("arguments"), [CLOCK, bad], NamedTool(CLOCK.name), True)


def test_tools_of_one_name_are_one() -> None:
    grammar = call_grammar(CallLayout("arguments"), [CLOCK, CLOCK], "required", True)
    assert grammar.count("%json") == 1


@given(...)
@settings(max_examples=20)
def test_arguments_are_parsed_as_written(days: int) -> None:
    form = generic(no_control)
    arguments = json.dumps({"city": "<tool_call>", "days": days})
    pieces = parse(form.parser(NAMES, str), form.written("get_weather", arguments))
    assert ToolArguments(0, arguments) in pieces
