"""A conversation in the OpenAI API's form as chat templates read it, with its tools and variables.

Not here: the types of the fields (schema), the templates (text.chat_template).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic_core import from_json

from firstword.server.errors import RequestError, UnsupportedFieldError
from firstword.server.schema import ContentPart, Message, Tool, ToolCall
from firstword.text.tools.spec import ToolSpec

RESERVED_VARIABLES = frozenset(
    {"messages", "tools", "prompt", "tokenizer", "self", "parse_special", "bos_token", "eos_token"}
)
"""Variables of a template that are not for clients to set."""


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


def tool_specs(tools: Sequence[Tool]) -> tuple[ToolSpec, ...]:
    """The functions that the model may call, in order.

    Raises:
        RequestError: two have one name; names the second.
    """
    specs: dict[str, ToolSpec] = {}
    for index, tool in enumerate(tools):
        function = tool.function
        if function.name in specs:
            param = f"tools[{index}].function.name"
            raise RequestError(f"{param} is {function.name!r}, as one before it: rename it", param)
        specs[function.name] = ToolSpec(
            name=function.name,
            description=function.description or "",
            parameters=function.parameters or {"type": "object", "properties": {}},
            pointer=f"/tools/{index}/function/parameters",
        )
    return tuple(specs.values())


def template_variables(given: Mapping[str, object] | None) -> dict[str, object]:
    """`chat_template_kwargs` as variables of the template.

    Raises:
        RequestError: one of them is not for requests to set.
    """
    for name in given or ():
        if name in RESERVED_VARIABLES or not name.isidentifier():
            param = "chat_template_kwargs"
            raise RequestError(f"{param} sets {name!r}, which is not for requests to set", param)
    return dict(given or {})


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
