"""Tool calls of models whose template speaks of no format.

Not here: formats that a template shows (llama3, hermes, gemma). Models are asked for the tags of
Hermes, which most have seen; bare JSON and fenced JSON are understood, too.
"""

from __future__ import annotations

from firstword.text.tools.calls import CallSyntax
from firstword.text.tools.hermes import CLOSE, GUIDE, OPEN, tagged_layout
from firstword.text.tools.json_format import IsControl, JsonFormat


def generic(is_control: IsControl) -> JsonFormat:
    """The format asked for where a model has none of its own."""
    return JsonFormat(
        name="generic",
        syntax=CallSyntax(
            tags={OPEN: CLOSE},
            fences=("tool_call", "tool_code", "json", ""),
            bare=True,
            separators=",;",
        ),
        layout=tagged_layout(is_control),
        guide=GUIDE,
        needs_special=is_control(OPEN) or is_control(CLOSE),
    )
