"""Which format of tool calls a model was trained on.

Not here: the formats (one file each).
"""

from __future__ import annotations

from firstword.text.tools.gemma import gemma
from firstword.text.tools.generic import generic
from firstword.text.tools.hermes import OPEN, hermes
from firstword.text.tools.json_format import IsControl
from firstword.text.tools.llama3 import llama3
from firstword.text.tools.spec import ToolFormat


def _no_control(text: str) -> bool:
    return False


def tool_format(template_source: str | None, is_control: IsControl | None = None) -> ToolFormat:
    """The format that a chat template speaks of; the generic one where it speaks of none.

    Args:
        template_source: the Jinja2 source; None for a model without a template.
        is_control: whether a string is a control token of the vocabulary
            (`Tokenizer.is_control_string`); None if no mark of calls is one.
    """
    source = template_source or ""
    is_control = is_control or _no_control
    if OPEN in source:
        return hermes(is_control)
    if "<|start_header_id|>" in source:
        return llama3()
    if "<start_of_turn>" in source:
        return gemma()
    return generic(is_control)
