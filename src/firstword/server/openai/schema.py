"""The bodies of requests, types and limits of their supported fields; and that of errors.

Not here: fields that are not supported (fields), conversations (server.schema).
Source of names and types: the OpenAI API reference, "Chat" and "Completions".
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Discriminator, Field, Tag

from firstword.server.bodies import Items
from firstword.server.schema import JsonObject, Message, Name, Strict, Tool

_MAX_TOKENS = 2**31
_MAX_STOPS = 64
_MAX_TOOLS = 512
_MAX_PROMPTS = 128

Positive = Annotated[int, Field(ge=1, le=_MAX_TOKENS)]
TokenId = Annotated[int, Field(ge=0, le=_MAX_TOKENS)]
Stops = str | Annotated[Items[str], Field(max_length=_MAX_STOPS)]


class StreamOptions(Strict):
    """How a stream is sent."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class SharedBody(Strict):
    """What both kinds of completion have; `None` is the default everywhere."""

    model: str | None = None
    temperature: float | None = None
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, le=_MAX_TOKENS)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    n: int | None = None
    stop: Stops | None = None
    stop_token_ids: Items[TokenId] | None = Field(None, max_length=_MAX_STOPS)
    min_tokens: int | None = Field(None, le=_MAX_TOKENS)
    max_tokens: Positive | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, float] | None = Field(None, max_length=4096)
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    penalty_scope: Literal["output", "all"] | None = None
    skip_special_tokens: bool | None = None
    guided_json: str | JsonObject | bool | None = None
    guided_regex: str | None = None
    guided_choice: Items[str] | None = Field(None, min_length=1, max_length=4096)
    guided_grammar: str | None = None
    priority: int | None = Field(None, ge=-100, le=100)
    cache_salt: str | None = Field(None, max_length=256)
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_progress: bool | None = None
    return_resolved: bool | None = None
    return_prompt_token_ids: bool | None = None


class FunctionName(Strict):
    """A function, by name."""

    name: Name


class FunctionChoice(Strict):
    """The one function to be called."""

    type: Literal["function"]
    function: FunctionName


class AnswerSchema(Strict):
    """The schema of an answer."""

    name: str | None = None
    description: str | None = None
    schema_: JsonObject | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Strict):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: AnswerSchema | None = None


class ChatBody(SharedBody):
    """Body of POST /v1/chat/completions."""

    messages: Items[Message] = Field(min_length=1)
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: Items[Tool] | None = Field(None, max_length=_MAX_TOOLS)
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    chat_template_kwargs: JsonObject | None = None
    separate_reasoning: bool | None = None


def _prompt_kind(value: object) -> str:
    """Which kind of prompt a value is meant to be, so that an error speaks of that kind alone."""
    if not isinstance(value, list):
        return "Text"
    first = value[0] if value else 0
    return "Texts" if isinstance(first, str) else "Lists" if isinstance(first, list) else "Ids"


_Ids = Annotated[Items[TokenId], Field(min_length=1)]
_Texts = Annotated[Items[str], Field(min_length=1, max_length=_MAX_PROMPTS)]
_Lists = Annotated[Items[_Ids], Field(min_length=1, max_length=_MAX_PROMPTS)]


class CompletionBody(SharedBody):
    """Body of POST /v1/completions."""

    prompt: Annotated[
        Annotated[str, Tag("Text")]
        | Annotated[_Ids, Tag("Ids")]
        | Annotated[_Texts, Tag("Texts")]
        | Annotated[_Lists, Tag("Lists")],
        Discriminator(_prompt_kind),
    ]
    logprobs: int | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, however they were given."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [item for item in self.prompt if isinstance(item, int)]
        return [ids] if ids else [item for item in self.prompt if not isinstance(item, int)]


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Body of every answer that is an error."""

    error: ErrorDetail
