"""A body of the API as a request of the chat service.

Not here: the types of the fields (schema), the templates (text.chat_template).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from firstword.engine.request import RequestOptions
from firstword.sampling.params import Grammar, SamplingParams
from firstword.server.anthropic.schema import (
    CountBody,
    Message,
    MessageBody,
    TextBlock,
    ThinkingBlock,
    ToolChoice,
    ToolResultBlock,
    ToolUseBlock,
)
from firstword.server.anthropic.schema import Tool as ToolBody
from firstword.server.chat import ChatRequest
from firstword.server.errors import RequestError, UnsupportedFieldError
from firstword.text.tools.spec import NamedTool, ToolSpec
from firstword.text.tools.spec import ToolChoice as Choice

_TOP_TOKEN = 1e-30  # a top_p of 0 means the most probable token: no other sum is this small

AnyBlock = TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock
ChatMessage = dict[str, object]


def chat_request(body: CountBody, request_id: str, options: RequestOptions) -> ChatRequest:
    """The request of a body; one whose tokens are only counted has no sampling parameters.

    Args:
        body: checked field by field.
        request_id: unique among the requests in flight.
        options: the request's place among the others.

    Raises:
        RequestError, ConfigError: fields contradict each other, or a value is out of its range.
    """
    tools = _tools(body.tools or ())
    choice = body.tool_choice or ToolChoice(type="auto")
    return ChatRequest(
        request_id=request_id,
        messages=messages(body),
        params=_params(body) if isinstance(body, MessageBody) else SamplingParams(),
        tools=tools,
        tool_choice=_tool_choice(choice, tools),
        parallel_tool_calls=not choice.disable_parallel_tool_use,
        variables={"enable_thinking": _thinks(body)},
        options=options,
    )


def messages(body: CountBody) -> list[ChatMessage]:
    """The conversation for a chat template.

    Turns of one role that follow each other become one, results of tools become messages of
    their own. Text blocks of the assistant are joined as they are, since that is how they were
    produced; those of others are paragraphs.

    Raises:
        RequestError: a block does not belong to its role, or a result to no call; names it.
        UnsupportedFieldError: the last message is the assistant's.
    """
    if body.messages[-1].role == "assistant":
        where = f"messages[{len(body.messages) - 1}]"
        raise UnsupportedFieldError(
            f"{where} is the assistant's: an answer that is begun for the model (prefill) is not "
            "supported, so the last message must be the user's",
            where,
        )
    result: list[ChatMessage] = []
    if body.system:
        system = body.system
        text = system if isinstance(system, str) else "\n\n".join(block.text for block in system)
        result.append({"role": "system", "content": text})
    names: dict[str, str] = {}  # of the tools called so far, by the id of the call
    for index, message in enumerate(body.messages):
        where = f"messages[{index}]"
        turns = (
            _assistant(message, where, names)
            if message.role == "assistant"
            else _user(message, where, names)
        )
        for turn in turns:
            _append(result, turn)
    return result


def _append(result: list[ChatMessage], turn: ChatMessage) -> None:
    """Add a turn, to the one before where both are the user's or both the assistant's."""
    last = result[-1] if result else {}
    role = turn["role"]
    if last.get("role") != role or role not in ("user", "assistant"):
        result.append(turn)
        return
    separator = "\n\n" if role == "user" and last["content"] and turn["content"] else ""
    result[-1] = {
        **last,
        **{key: value for key, value in turn.items() if key not in last},
        "content": f"{last['content']}{separator}{turn['content']}",
    }
    for key in ("tool_calls", "reasoning_content"):
        first, second = last.get(key), turn.get(key)
        if isinstance(first, list) and isinstance(second, list):
            result[-1][key] = first + second
        elif isinstance(first, str) and isinstance(second, str):
            result[-1][key] = first + second


def _blocks(message: Message) -> Sequence[AnyBlock]:
    if isinstance(message.content, str):
        return [TextBlock(type="text", text=message.content)]
    return message.content


def _assistant(message: Message, where: str, names: dict[str, str]) -> Iterator[ChatMessage]:
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[ChatMessage] = []
    for index, block in enumerate(_blocks(message)):
        if isinstance(block, TextBlock):
            text.append(block.text)
        elif isinstance(block, ThinkingBlock):
            reasoning.append(block.thinking)
        elif isinstance(block, ToolUseBlock):
            names[block.id] = block.name
            function = {"name": block.name, "arguments": block.input}
            calls.append({"id": block.id, "type": "function", "function": function})
        else:
            raise _misplaced(block, f"{where}.content[{index}]", "user")
    turn: ChatMessage = {"role": "assistant", "content": "".join(text)}
    if reasoning:
        turn["reasoning_content"] = "".join(reasoning)
    if calls:
        turn["tool_calls"] = calls
    yield turn


def _user(message: Message, where: str, names: dict[str, str]) -> Iterator[ChatMessage]:
    blocks = _blocks(message)
    for index, block in enumerate(blocks):
        if isinstance(block, TextBlock):
            yield {"role": "user", "content": block.text}
        elif isinstance(block, ToolResultBlock):
            yield _tool_result(block, f"{where}.content[{index}]", names)
        else:
            raise _misplaced(block, f"{where}.content[{index}]", "assistant")
    if not blocks:
        yield {"role": "user", "content": ""}


def _tool_result(block: ToolResultBlock, where: str, names: dict[str, str]) -> ChatMessage:
    if block.tool_use_id not in names:
        param = f"{where}.tool_use_id"
        raise RequestError(
            f"{param} is {block.tool_use_id!r}: a result belongs to a tool_use block of an "
            "assistant's message before it",
            param,
        )
    content = block.content or ""
    text = content if isinstance(content, str) else "\n\n".join(part.text for part in content)
    return {
        "role": "tool",
        "content": f"Error: {text}" if block.is_error else text,
        "tool_call_id": block.tool_use_id,
        "name": names[block.tool_use_id],
    }


def _misplaced(block: AnyBlock, where: str, role: str) -> RequestError:
    return RequestError(
        f"{where} is of type {block.type!r}, which only messages of role {role!r} have", where
    )


def _tools(given: Sequence[ToolBody]) -> tuple[ToolSpec, ...]:
    tools: dict[str, ToolSpec] = {}
    for index, tool in enumerate(given):
        param = f"tools[{index}]"
        if tool.name in tools:
            raise RequestError(f"{param}.name is {tool.name!r}, as one before it: rename it", param)
        if tool.input_schema.get("type") != "object":
            param = f"{param}.input_schema"
            raise RequestError(f"{param}.type must be 'object': arguments are an object", param)
        pointer = f"/tools/{index}/input_schema"
        tools[tool.name] = ToolSpec(tool.name, tool.description or "", tool.input_schema, pointer)
    return tuple(tools.values())


def _tool_choice(choice: ToolChoice, tools: Sequence[ToolSpec]) -> Choice:
    if choice.type in ("auto", "none"):
        return "auto" if choice.type == "auto" else "none"
    if not tools:
        raise RequestError(
            f"tool_choice is {choice.type!r}, but there are no tools: give some", "tool_choice"
        )
    if choice.type == "any":
        return "required"
    if choice.name not in {tool.name for tool in tools}:
        raise RequestError(
            f"tool_choice.name is {choice.name!r}, but no tool has that name", "tool_choice.name"
        )
    return NamedTool(choice.name or "")


def _thinks(body: CountBody) -> bool:
    """Whether the model is to think; as in the API, it is not unless asked."""
    thinking = body.thinking
    if thinking is None or thinking.type == "disabled":
        return False
    if thinking.type == "enabled" and thinking.budget_tokens is None:
        raise RequestError("thinking.budget_tokens is missing", "thinking.budget_tokens")
    budget = thinking.budget_tokens or 0
    if isinstance(body, MessageBody) and budget >= body.max_tokens:
        raise RequestError(
            f"thinking.budget_tokens is {budget}, but max_tokens is {body.max_tokens}, which "
            "holds the thinking too: raise the second",
            "thinking.budget_tokens",
        )
    return True


def _params(body: MessageBody) -> SamplingParams:
    top_p = 1.0 if body.top_p is None else body.top_p or _TOP_TOKEN
    return SamplingParams(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_k=body.top_k or 0,
        top_p=top_p,
        max_tokens=body.max_tokens,
        stop=tuple(body.stop_sequences or ()),
        grammar=_grammar(body),
    )


def _grammar(body: MessageBody) -> Grammar | None:
    form = body.output_config and body.output_config.format
    if not form:
        return None
    try:
        return Grammar("json_schema", json.dumps(form.schema_, allow_nan=False))
    except ValueError:
        param = "output_config.format.schema"
        raise RequestError(f"{param} holds a number that is too large for JSON", param) from None
