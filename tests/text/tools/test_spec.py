from __future__ import annotations

from firstword.text.tools.spec import ToolSpec


def test_tools_as_templates_read_them() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert ToolSpec("f", "Does.", schema).for_template() == {
        "type": "function",
        "function": {"name": "f", "description": "Does.", "parameters": schema},
    }
    empty = {"type": "object", "properties": {}}
    assert ToolSpec("g").for_template()["function"] == {
        "name": "g",
        "description": "",
        "parameters": empty,
    }


def test_specs_can_be_compared_and_hashed() -> None:
    assert ToolSpec("f") == ToolSpec("f") != ToolSpec("g")
    assert len({ToolSpec("f", "", {"a": []}), ToolSpec("f", "", {"a": []})}) == 1
