"""A conversation of the API as chat templates read it: contents are text, arguments are mappings.

Not here: the types of the fields (schema), the templates (text.chat_template).
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import from_json

from firstword.server.errors import RequestError, UnsupportedFieldError
from firstword.server.openai.schema import ContentPart, Message, ToolCall


def normalize(messages: Sequence[Message]) -> list[dict[str, object]]:
    """The messages for a chat template.

    The parts of a content are joined by line ends, developer becomes system, a refusal is what
    the assistant said, arguments are parsed, and a tool's message carries its function's name.

    Args:
        messages: as they came.

    Raises:
        RequestError: a message lacks what its role needs; names its index and field.
        UnsupportedFieldError: a part that is not text.
    """
    names: dict[str, str] = {}  # of the functions called so far, by the id of the call
    return [
        _message(message, f"messages[{index}]", names) for index, message in enumerate(messages)
    ]


def _message(message: Message, where: str, names: dict[str, str]) -> dict[str, object]:
    role = "system" if message.role == "developer" else message.role
    if message.tool_calls and role != "assistant":
        raise RequestError(
            f"{where} has tool_calls, which only the assistant makes: its role is {role!r}",
            f"{where}.tool_calls",
        )
    result: dict[str, object] = {"role": role, "content": _content(message, where)}
    if message.name is not None:
        result["name"] = message.name
    if message.reasoning_content is not None:
        result["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        result["tool_calls"] = [
            _tool_call(call, f"{where}.tool_calls[{index}]")
            for index, call in enumerate(message.tool_calls)
        ]
        names |= {call.id: call.function.name for call in message.tool_calls}
    if role == "tool":
        call_id = message.tool_call_id or ""
        if call_id not in names:
            raise RequestError(
                f"{where}.tool_call_id is {message.tool_call_id!r}: a tool answers a call of an "
                "assistant's message before it",
                f"{where}.tool_call_id",
            )
        result |= {"tool_call_id": call_id, "name": message.name or names[call_id]}
    return result


def _content(message: Message, where: str) -> str:
    content = message.content
    if isinstance(content, list):
        parts = (_part(part, f"{where}.content[{i}]") for i, part in enumerate(content))
        return "\n".join(parts)
    if content is not None:
        return content
    if message.refusal is not None:
        return message.refusal
    if message.role != "assistant" or not (message.tool_calls or message.reasoning_content):
        raise RequestError(f"{where}.content is missing", f"{where}.content")
    return ""


def _part(part: ContentPart, where: str) -> str:
    if part.type not in ("text", "refusal"):
        raise UnsupportedFieldError(
            f"{where} is of type {part.type!r}: the model reads text only", f"{where}.type"
        )
    text = part.text if part.type == "text" else part.refusal
    if text is None:
        raise RequestError(f"{where}.{part.type} is missing", f"{where}.{part.type}")
    return text


def _tool_call(call: ToolCall, where: str) -> dict[str, object]:
    param = f"{where}.function.arguments"
    try:
        arguments = from_json(call.function.arguments or "{}", allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(f"{param} is not valid JSON: {error}", param) from None
    if not isinstance(arguments, dict):
        raise RequestError(f"{param} must be a JSON object in a string", param)
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}
