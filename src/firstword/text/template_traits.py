"""What a chat template can write, found by rendering small conversations with it.

Not here: what is done where it cannot (chat_messages).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from firstword.errors import ChatTemplateError

Render = Callable[[Sequence[Mapping[str, object]], Mapping[str, object]], str]
"""Renders messages with variables.

Raises:
    ChatTemplateError: the template refuses them.
"""

_SYSTEM, _TOOL, _KEY, _VALUE, _RESULT = "sYsTeM", "tOoL", "kEy", "vAlUe", "rEsUlT"
_MAPPING, _TEXT = {_KEY: _VALUE}, f'{{"{_KEY}": "{_VALUE}"}}'
_USER: dict[str, object] = {"role": "user", "content": "uSeR"}


def _said_by(role: str) -> dict[str, object]:
    return {"role": role, "content": _SYSTEM}


def _call(arguments: object, call_id: str = "call00000") -> dict[str, object]:
    """A call; some templates take ids of nine letters and digits only."""
    function = {"name": _TOOL, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


class TemplateTraits:
    """What one template can write; each trait is found when it is first asked for.

    Args:
        source: the template.
        render: renders with it.
    """

    def __init__(self, source: str, render: Render) -> None:
        self._source, self._render = source, render

    @cached_property
    def knows_developer(self) -> bool:
        """Whether there is a role of the developer beside that of the system."""
        messages = [_said_by("developer"), _USER]
        return "developer" in self._source and _SYSTEM in self._try(messages)

    @cached_property
    def takes_system(self) -> bool:
        """Whether system messages can be written; also said of a template that refuses all."""
        messages = [_said_by("system"), _USER]
        return _SYSTEM in self._try(messages) or not self._try([_USER])

    @cached_property
    def takes_tools(self) -> bool:
        """Whether the template itself tells the model of its tools."""
        return "tools" in self._source and _TOOL in self._try([_USER])

    @cached_property
    def takes_calls(self) -> bool:
        """Whether the template writes calls and their results."""
        return self._writes_call(_MAPPING) or self.wants_text

    @cached_property
    def wants_text(self) -> bool:
        """Whether arguments must be given as JSON text, since the template writes them as is."""
        return not self._writes_call(_MAPPING) and self._writes_call(_TEXT)

    @cached_property
    def takes_parallel_calls(self) -> bool:
        """Whether one message may hold several calls."""
        arguments = _TEXT if self.wants_text else _MAPPING
        calls = [_call(arguments), _call(arguments, "call00001")]
        return self._try(_conversation(calls)).count(_VALUE) == 2

    def _writes_call(self, arguments: object) -> bool:
        rendered = self._try(_conversation([_call(arguments)]))
        written_as_python = f"'{_KEY}'" in rendered
        return _VALUE in rendered and _RESULT in rendered and not written_as_python

    def _try(self, messages: Sequence[Mapping[str, object]]) -> str:
        function = {
            "name": _TOOL,
            "description": "",
            "parameters": {"type": "object", "properties": {_KEY: {"type": "string"}}},
        }
        tools = [{"type": "function", "function": function}]
        try:
            return self._render(messages, {"tools": tools, "add_generation_prompt": True})
        except ChatTemplateError:
            return ""


def _conversation(calls: list[dict[str, object]]) -> list[dict[str, object]]:
    results: list[dict[str, object]] = [
        {"role": "tool", "tool_call_id": call["id"], "name": _TOOL, "content": _RESULT}
        for call in calls
    ]
    return [_USER, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
