"""The bodies of requests, types and limits of their supported fields; and that of errors.

Not here: fields that are not supported (fields), and how a conversation becomes one that chat
templates read (conversation). Source of names and types: the Anthropic API reference, "Messages".
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from firstword.server.bodies import Items
from firstword.server.schema import JsonObject, Name, Strict

_MAX_TOKENS = 2**31
_MAX_STOPS = 64
_MAX_TOOLS = 512
_MIN_BUDGET = 1024


class TextBlock(Strict):
    """Text; citations of an earlier answer say nothing to the model."""

    type: Literal["text"]
    text: str
    citations: None = None
    cache_control: JsonValue = None


class ThinkingBlock(Strict):
    """Reasoning of an earlier answer; its signature is not read."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class ToolUseBlock(Strict):
    """A call in an earlier answer."""

    type: Literal["tool_use"]
    id: str
    name: Name
    input: JsonObject
    cache_control: JsonValue = None
    caller: JsonValue = None


class ToolResultBlock(Strict):
    """What a call gave."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Items[Text] | None = None
    is_error: bool | None = None
    cache_control: JsonValue = None


_BLOCK_TAGS = {
    "text": "TextBlock",
    "thinking": "ThinkingBlock",
    "tool_use": "ToolUseBlock",
    "tool_result": "ToolResultBlock",
}


def _block_tag(block: object) -> str | None:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return _BLOCK_TAGS.get(kind) if isinstance(kind, str) else None


def _text_tag(block: object) -> str | None:
    tag = _block_tag(block)
    return tag if tag == "TextBlock" else None


Text = Annotated[
    Annotated[TextBlock, Tag("TextBlock")],
    Discriminator(
        _text_tag,
        custom_error_type="unsupported_block",
        custom_error_message="only blocks of type text are supported here",
    ),
]
Block = Annotated[
    Annotated[TextBlock, Tag("TextBlock")]
    | Annotated[ThinkingBlock, Tag("ThinkingBlock")]
    | Annotated[ToolUseBlock, Tag("ToolUseBlock")]
    | Annotated[ToolResultBlock, Tag("ToolResultBlock")],
    Discriminator(
        _block_tag,
        custom_error_type="unsupported_block",
        custom_error_message="blocks of types text, thinking, tool_use and tool_result are "
        "supported, images and documents are not",
    ),
]


class Message(Strict):
    """One turn, or a part of one."""

    role: Literal["user", "assistant"]
    content: str | Items[Block]


class Tool(Strict):
    """A function that the model may call."""

    name: Name
    input_schema: JsonObject
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    cache_control: JsonValue = None
    eager_input_streaming: bool | None = None


class ToolChoice(Strict):
    """Whether the model may, must or must not call, and what."""

    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Strict):
    """Whether the model thinks before it answers."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=_MIN_BUDGET, le=_MAX_TOKENS)
    display: Literal["summarized"] | None = None


class OutputFormat(Strict):
    """The form of an answer."""

    type: Literal["json_schema"]
    schema_: JsonObject = Field(alias="schema")


class OutputConfig(Strict):
    """How an answer is to be."""

    format: OutputFormat | None = None


class CountBody(Strict):
    """Body of POST /v1/messages/count_tokens."""

    model: str | None = None
    messages: Items[Message] = Field(min_length=1, max_length=100_000)
    system: str | Items[Text] | None = None
    tools: Items[Tool] | None = Field(None, max_length=_MAX_TOOLS)
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class MessageBody(CountBody):
    """Body of POST /v1/messages."""

    max_tokens: int = Field(ge=1, le=_MAX_TOKENS)
    stop_sequences: Items[str] | None = Field(None, max_length=_MAX_STOPS)
    stream: bool | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=0, le=_MAX_TOKENS)
    top_p: float | None = Field(None, ge=0, le=1)


class AnthropicErrorDetail(Strict):
    """What went wrong."""

    type: str
    message: str


class AnthropicErrorBody(Strict):
    """Body of every answer that is an error."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str | None
