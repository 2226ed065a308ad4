"""Tool calls of Gemma 1 to 3: JSON with "parameters", perhaps in a fenced block.

Not here: Gemma's Python style of calls, the other one that Google's guide to function calling
with Gemma shows: JSON can be held to a schema. Their templates have no role for tools: the system
text describes them, and Gemma likes to fence what it writes.
"""

from __future__ import annotations

from firstword.text.tools.calls import CallSyntax
from firstword.text.tools.grammar import CallLayout
from firstword.text.tools.json_format import JsonFormat

_GUIDE = (
    "You have access to functions. If you decide to call one, write nothing but a JSON object of "
    'the form {"name": function name, "parameters": object of argument names and values}, each '
    "call on a line of its own. Functions:\n{tools}"
)


def gemma() -> JsonFormat:
    """The format of Gemma."""
    return JsonFormat(
        name="gemma",
        syntax=CallSyntax(
            fences=("tool_code", "tool_call", "json", ""), bare=True, separators=",;"
        ),
        layout=CallLayout("parameters"),
        guide=_GUIDE,
    )
