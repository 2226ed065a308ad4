"""Chat messages checked, and put in the way that a template can write them.

Not here: the template itself (chat_template), what it can write (template_traits).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from firstword.errors import ChatTemplateError
from firstword.text.template_traits import TemplateTraits
from firstword.text.tools.spec import ToolFormat

Message = Mapping[str, object]
"""One message: "role", "content", and whatever else the template reads. Content may be None or
missing beside "tool_calls"; see `check_messages`."""


@dataclass(frozen=True)
class Adapted:
    """A message as the template takes it.

    Args:
        fields: "role" and "content" are strings.
        origin: index of the message it was made from.
        is_result: it holds the results of tools as a user's words.
    """

    fields: Mapping[str, object]
    origin: int
    is_result: bool = False

    @property
    def role(self) -> str:
        """Who speaks."""
        return str(self.fields["role"])

    @property
    def content(self) -> str:
        """What is said."""
        return str(self.fields["content"])

    def saying(self, content: str) -> Adapted:
        """The same with other content."""
        return replace(self, fields={**self.fields, "content": content})


def check_messages(messages: object) -> list[Message]:
    """The messages as mappings whose role and content are strings.

    "content" may be None or missing in a message with "tool_calls": a list of
    {"function": {"name": str, "arguments": a mapping or the JSON text of one}}.

    Raises:
        ChatTemplateError: they are malformed; names the message.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise ChatTemplateError(
            f"messages must be a list of messages, found {type(messages).__name__}"
        )
    if not messages:
        raise ChatTemplateError("messages is empty: give at least one message")
    return [_checked(index, message) for index, message in enumerate(messages)]


def _checked(index: int, message: object) -> Message:
    if not isinstance(message, Mapping):
        raise ChatTemplateError(
            f"message {index} must be a mapping with role and content, "
            f"found {type(message).__name__}"
        )
    checked = dict(message)
    if message.get("tool_calls"):
        checked["tool_calls"] = _checked_calls(index, message["tool_calls"])
        if checked.get("content") is None:
            checked["content"] = ""
    for key in ("role", "content"):
        if not isinstance(checked.get(key), str):
            found = type(checked[key]).__name__ if key in checked else "nothing"
            raise ChatTemplateError(f"message {index}: {key} must be a string, found {found}")
    return checked


def _checked_calls(index: int, calls: object) -> list[Mapping[str, object]]:
    if isinstance(calls, str | bytes) or not isinstance(calls, Sequence):
        raise ChatTemplateError(
            f"message {index}: tool_calls must be a list, found {type(calls).__name__}"
        )
    return [_checked_call(f"message {index}: tool_calls[{i}]", c) for i, c in enumerate(calls)]


def _checked_call(where: str, call: object) -> Mapping[str, object]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise ChatTemplateError(f'{where} must be a mapping with "function", a mapping, too')
    if not isinstance(function.get("name"), str):
        raise ChatTemplateError(f"{where}: function.name must be a string")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            pass  # what it is then says the next line
    if not isinstance(arguments, Mapping):
        raise ChatTemplateError(
            f"{where}: function.arguments must be an object, or the JSON text of one"
        )
    return {"type": "function", **call, "function": {**function, "arguments": arguments}}


@dataclass(frozen=True)
class Adapter:
    """Puts checked messages in the way that one template can write them.

    A template without a role for tools gets calls and results as text of the assistant and of
    the user, and the list of tools as system text; one without a system role gets that text
    before the first words of the user.

    Args:
        traits: what the template can write.
        tool_format: how the model writes calls.
    """

    traits: TemplateTraits
    tool_format: ToolFormat

    def adapt(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, object]]
    ) -> tuple[list[Adapted], bool]:
        """(the messages to render, whether the template itself is to be given the tools)."""
        adapted = [Adapted(message, index) for index, message in enumerate(messages)]
        adapted = [self._with_known_role(message) for message in adapted]
        if any("tool_calls" in m.fields or m.role == "tool" for m in adapted):
            adapted = list(self._with_calls(adapted))
        gives_tools = bool(tools) and self.traits.takes_tools
        if tools and not gives_tools:
            adapted = _with_system(adapted, self.tool_format.instructions(tools))
        if adapted[0].role == "system" and not self.traits.takes_system:
            adapted = _folded(adapted)
        return adapted, gives_tools

    def _with_known_role(self, message: Adapted) -> Adapted:
        if message.role == "developer" and not self.traits.knows_developer:
            return replace(message, fields={**message.fields, "role": "system"})
        return message

    def _with_calls(self, messages: Sequence[Adapted]) -> Iterator[Adapted]:
        named = list(_with_names(messages))
        if not self.traits.takes_calls:
            return _merged_results(self._as_text(message) for message in named)
        if not self.traits.takes_parallel_calls:
            named = list(_one_call_each(named))
        return map(self._with_arguments, named) if self.traits.wants_text else iter(named)

    def _as_text(self, message: Adapted) -> Adapted:
        """A message of calls or of a result as plain words."""
        if message.role == "tool":
            content = f"<tool_response>\n{message.content}\n</tool_response>"
            return Adapted({"role": "user", "content": content}, message.origin, is_result=True)
        calls = _functions(message)
        if not calls:
            return message
        written = [
            self.tool_format.written(str(call["name"]), _json(call["arguments"])) for call in calls
        ]
        content = "\n".join([*filter(None, [message.content]), *written])
        fields = {key: value for key, value in message.fields.items() if key != "tool_calls"}
        return replace(message, fields={**fields, "content": content})

    def _with_arguments(self, message: Adapted) -> Adapted:
        """Arguments as JSON text, for templates that write them as they are."""
        calls = [
            {**call, "function": {**function, "arguments": _json(function["arguments"])}}
            for call, function in zip(_calls(message), _functions(message), strict=True)
        ]
        return (
            replace(message, fields={**message.fields, "tool_calls": calls}) if calls else message
        )


def _calls(message: Adapted) -> list[Mapping[str, object]]:
    calls = message.fields.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _functions(message: Adapted) -> list[Mapping[str, object]]:
    functions = [call["function"] for call in _calls(message)]
    return [function for function in functions if isinstance(function, Mapping)]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _with_names(messages: Sequence[Adapted]) -> Iterator[Adapted]:
    """Each result with the name of the tool that was called, where only its id is given."""
    names: dict[object, object] = {}
    for message in messages:
        for call, function in zip(_calls(message), _functions(message), strict=True):
            names[call.get("id")] = function["name"]
        name = names.get(message.fields.get("tool_call_id"))
        if message.role == "tool" and name is not None and not message.fields.get("name"):
            message = replace(message, fields={**message.fields, "name": name})
        yield message


def _one_call_each(messages: Sequence[Adapted]) -> Iterator[Adapted]:
    """Parallel calls one after the other, each followed by its result."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        calls = _calls(message)
        if len(calls) < 2:
            yield message
            continue
        end = at
        while end < len(messages) and messages[end].role == "tool":
            end += 1
        results = list(messages[at:end])
        at = end
        for number, call in enumerate(calls):
            content = "" if number else message.content
            fields = {**message.fields, "tool_calls": [call], "content": content}
            yield replace(message, fields=fields)
            own = [r for r in results if r.fields.get("tool_call_id") == call.get("id")]
            yield from own
            results = [result for result in results if result not in own]
        yield from results


def _merged_results(messages: Iterator[Adapted]) -> Iterator[Adapted]:
    """Results, and what the user says after them, as one message: roles must often alternate."""
    last: Adapted | None = None
    for message in messages:
        if last is not None and last.is_result and message.role == "user":
            gap = "\n" if message.is_result else "\n\n"
            last = last.saying(last.content + gap + message.content)
            last = replace(last, is_result=message.is_result)
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last


def _with_system(messages: list[Adapted], text: str) -> list[Adapted]:
    first = messages[0]
    if first.role == "system":
        return [first.saying(f"{first.content}\n\n{text}"), *messages[1:]]
    return [Adapted({"role": "system", "content": text}, 0), *messages]


def _folded(messages: list[Adapted]) -> list[Adapted]:
    """The system's words before the user's first."""
    system, *others = messages
    if others and others[0].role == "user":
        first = others[0].saying(f"{system.content}\n\n{others[0].content}")
        return [first, *others[1:]]
    return [replace(system, fields={**system.fields, "role": "user"}), *others]
