"""Which format of tool calls a model was trained on.

Not here: the formats (one file each).
"""

from __future__ import annotations

from collections.abc import Callable

from firstword.text.tools.spec import ToolFormat


def tool_format(
    template_source: str | None, is_control: Callable[[str], bool] | None = None
) -> ToolFormat:
    """The format that a chat template speaks of; the generic one where it speaks of none.

    Args:
        template_source: the Jinja2 source; None for a model without a template.
        is_control: whether a string is a control token of the vocabulary
            (`Tokenizer.is_control_string`); None if no mark is.
    """
    raise NotImplementedError
