"""Grammars that hold a model to calls of its tools with arguments that their schemas allow.

Not here: free answers, which nothing holds; how a grammar is enforced (sampling).
Written in llguidance's dialect of Lark: https://github.com/guidance-ai/llguidance, docs/syntax.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firstword.errors import ConfigError, GrammarError
from firstword.text.json_schema import check_schema
from firstword.text.tools.spec import NamedTool, ToolChoice, ToolSpec

_COMBINATIONS = ("$ref", "allOf", "anyOf", "oneOf", "patternProperties", "unevaluatedProperties")


@dataclass(frozen=True)
class CallLayout:
    """How a call is written.

    Args:
        arguments: the key of the arguments.
        before, after: what stands around the object.
        between: what stands between two calls.
        control_before, control_after: control tokens outside of `before` and `after`, "" for
            none.
    """

    arguments: str
    before: str = ""
    after: str = ""
    between: str = "\n"
    control_before: str = ""
    control_after: str = ""

    def opening(self, name: str) -> str:
        """A call's text up to its arguments."""
        start = f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{self.arguments}": '
        return self.control_before + self.before + start

    @property
    def closing(self) -> str:
        """A call's text after its arguments."""
        return "}" + self.after + self.control_after


def call_grammar(
    layout: CallLayout, tools: Sequence[ToolSpec], choice: ToolChoice, parallel: bool
) -> str:
    """A Lark grammar of one call, or one and more, of the chosen tools.

    Args:
        layout: how the model writes calls.
        tools: at least one; those of one name are taken as one.
        choice: "required" or a NamedTool.
        parallel: more than one call may be made.

    Raises:
        ConfigError: there is no tool, or none of the chosen name.
        GrammarError: the schema of one cannot be enforced; its pointer begins with the tool's.
    """
    chosen = _chosen(tools, choice)
    more = f" ({_literal(layout.between)} call)*" if parallel else ""
    rules = [f"start: call{more}", "call: " + " | ".join(f"call_{i}" for i in chosen)]
    for index in chosen:
        rules += _call_rules(layout, index, tools[index])
    return "\n".join(rules) + "\n"


def _chosen(tools: Sequence[ToolSpec], choice: ToolChoice) -> list[int]:
    names = [tool.name for tool in tools]
    if not names:
        raise ConfigError("a tool must be called, but tools is empty: give at least one tool")
    if isinstance(choice, NamedTool):
        if choice.name not in names:
            raise ConfigError(
                f"tool_choice names the tool {choice.name!r}, which tools lacks: they are "
                f"{', '.join(names)}"
            )
        return [names.index(choice.name)]
    return [names.index(name) for name in dict.fromkeys(names)]


def _call_rules(layout: CallLayout, index: int, tool: ToolSpec) -> list[str]:
    opening = layout.opening(tool.name).removeprefix(layout.control_before)
    closing = layout.closing.removesuffix(layout.control_after)
    parts = [
        layout.control_before,
        _literal(opening),
        f"args_{index}",
        _literal(closing),
        layout.control_after,
    ]
    arguments = arguments_schema(tool.parameters)
    try:
        check_schema(arguments)
    except GrammarError as error:
        raise GrammarError(error.problem, tool.pointer + error.pointer) from None
    schema = json.dumps(arguments, ensure_ascii=False)
    # The schema stands as the root of its own, so that its "#/..." references hold.
    return [f"call_{index}: {' '.join(filter(None, parts))}", f"args_{index}: %json {schema}"]


def arguments_schema(parameters: Mapping[str, object]) -> dict[str, object]:
    """A tool's schema as it is enforced: an object, of the listed keys only.

    A schema that allows more keys without naming them would let a model invent arguments for
    ever; where it combines schemas it is taken as it is.
    """
    schema: dict[str, object] = {"type": "object", **parameters}
    if not any(key in schema for key in _COMBINATIONS):
        schema.setdefault("properties", {})
        schema.setdefault("additionalProperties", False)
    return schema


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
