"""Types that bodies share: strict objects, and conversations as the OpenAI API has them.

Not here: the bodies themselves (the schema of each API, tokenization), and what a message must be
for a chat template (messages).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from firstword.server.bodies import Items

JsonObject = dict[str, JsonValue]
Name = Annotated[str, Field(min_length=1, max_length=256)]


class Strict(BaseModel):
    """A JSON object that has its fields and no others; nothing is converted."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class CalledFunction(Strict):
    """Which function was called, and with what."""

    name: Name
    arguments: str


class ToolCall(Strict):
    """A call in an assistant's message; `index` is left from a stream's chunks."""

    id: str
    type: Literal["function"] | None = None
    function: CalledFunction
    index: int | None = None


class ContentPart(BaseModel):
    """A part of a content; the types that are not text are refused by name later."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: str
    text: str | None = None
    refusal: str | None = None


class Message(Strict):
    """One message; the last five fields are what clients send back from earlier answers."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Items[ContentPart] | None = None
    name: str | None = None
    tool_calls: Items[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: Items[JsonValue] | None = None
    cache_control: JsonValue = None
    audio: None = None
    function_call: None = None


class FunctionSpec(Strict):
    """A function that the model may call."""

    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(Strict):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionSpec
    cache_control: JsonValue = None
