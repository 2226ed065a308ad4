"""Tool calls of Llama 3.1 to 3.3: bare JSON with "parameters", "; " between several.

Not here: the calls of built-in tools (brave_search.call(...)), which no client defines.
After the model card's prompt format: a call may follow <|python_tag|>.
"""

from __future__ import annotations

from firstword.text.tools.calls import CallSyntax
from firstword.text.tools.grammar import CallLayout
from firstword.text.tools.json_format import JsonFormat

_GUIDE = (
    "You can call these functions. To call one, answer with nothing but a JSON object of the form "
    '{"name": function name, "parameters": object of argument names and values}. Separate several '
    "calls by semicolons. Functions:\n\n{tools}"
)


def llama3() -> JsonFormat:
    """The format of Llama 3.x; without <|python_tag|>, which is not needed to know a call."""
    return JsonFormat(
        name="llama3",
        syntax=CallSyntax(tags={"<|python_tag|>": ""}, bare=True, separators=";"),
        layout=CallLayout("parameters", between="; "),
        guide=_GUIDE,
    )
