"""Tool calls of Hermes and Qwen: JSON between <tool_call> and </tool_call>.

Not here: Qwen3-Coder's calls, which are XML. After the function-calling format of Nous Hermes.
"""

from __future__ import annotations

from firstword.text.tools.calls import CallSyntax
from firstword.text.tools.grammar import CallLayout
from firstword.text.tools.json_format import IsControl, JsonFormat

OPEN, CLOSE = "<tool_call>", "</tool_call>"

GUIDE = (
    "You can call functions to help with what the user asks. They are described by JSON, one per "
    "line, within <tools></tools>:\n<tools>\n{tools}\n</tools>\n\n"
    "For each call, write a JSON object with the function's name and its arguments within "
    "<tool_call></tool_call>:\n<tool_call>\n"
    '{"name": function name, "arguments": object of argument names and values}\n</tool_call>'
)


def tagged_layout(is_control: IsControl) -> CallLayout:
    """Calls between tags, whether these are text or control tokens of the vocabulary."""
    before, after = "\n", "\n"
    control_before = control_after = ""
    if is_control(OPEN):
        control_before = OPEN
    else:
        before = OPEN + before
    if is_control(CLOSE):
        control_after = CLOSE
    else:
        after += CLOSE
    return CallLayout("arguments", before, after, "\n", control_before, control_after)


def hermes(is_control: IsControl) -> JsonFormat:
    """The format of Hermes 2 Pro and later, Qwen 2.5 and Qwen 3."""
    return JsonFormat(
        name="hermes",
        syntax=CallSyntax(tags={OPEN: CLOSE}),
        layout=tagged_layout(is_control),
        guide=GUIDE,
        needs_special=is_control(OPEN) or is_control(CLOSE),
    )
