"""/tokenize and /detokenize: what the model reads of a prompt or a conversation, and back.

Not here: tokenization itself (text). Names are those of vLLM's API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from firstword.sampling.params import SamplingParams
from firstword.server.bodies import Items, read_json, validate
from firstword.server.chat import ChatRequest, ChatService
from firstword.server.errors import Endpoint, RequestError, answers_errors, openai_response
from firstword.server.messages import normalize, template_variables, tool_specs
from firstword.server.openai.schema import ErrorBody
from firstword.server.openapi import errors_of_bodies, request_body
from firstword.server.responses import json_response
from firstword.server.schema import JsonObject, Message, Strict, Tool

_MAX_TOKEN_ID = 2**31


class TokenizeBody(Strict):
    """Body of POST /tokenize: a prompt or messages.

    Args:
        model: the served model's name; that one if unsaid.
        prompt: text, in which control strings are control tokens.
        messages: a conversation, read through the model's chat template.
        tools: functions that the template tells the model of.
        add_generation_prompt: end the conversation with what opens the answer; true if unsaid.
        chat_template_kwargs: further variables of the template.
        add_special_tokens: begin a prompt as the model wants it; true if unsaid. A conversation
            has what its template writes.
        return_token_strs: give each token's text too.
    """

    model: str | None = None
    prompt: str | None = None
    messages: Items[Message] | None = Field(None, min_length=1)
    tools: Items[Tool] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: JsonObject | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Strict):
    """Body of POST /detokenize.

    Args:
        model: the served model's name; that one if unsaid.
        tokens: token ids.
    """

    model: str | None = None
    tokens: Items[Annotated[int, Field(ge=0, le=_MAX_TOKEN_ID)]]


def router(service: ChatService) -> APIRouter:
    """/tokenize and /detokenize.

    Args:
        service: has the model.
    """
    routes = APIRouter(tags=["Tokens"])

    async def tokenize(request: Request) -> Response:
        """Token ids of a prompt, or of a conversation as the model reads it."""
        body = validate(TokenizeBody, await read_json(request))
        service.check_model(body.model)
        return json_response(await _tokenize(service, body))

    async def detokenize(request: Request) -> Response:
        """The text of token ids, control tokens by their names."""
        body = validate(DetokenizeBody, await read_json(request))
        service.check_model(body.model)
        text = await asyncio.to_thread(_decode, service, body.tokens)
        return json_response({"prompt": text})

    _add(routes, "/tokenize", tokenize, TokenizeBody)
    _add(routes, "/detokenize", detokenize, DetokenizeBody)
    return routes


def _add(routes: APIRouter, path: str, endpoint: Endpoint, body: type[BaseModel]) -> None:
    routes.add_api_route(
        path,
        answers_errors(endpoint, openai_response),
        methods=["POST"],
        response_model=None,
        responses=errors_of_bodies(ErrorBody),
        openapi_extra=request_body(body),
    )


async def _tokenize(service: ChatService, body: TokenizeBody) -> dict[str, object]:
    token_ids = await _token_ids(service, body)
    token_text = service.llm.tokenizer.token_text
    strings = [token_text(token_id) for token_id in token_ids] if body.return_token_strs else None
    return {
        "count": len(token_ids),
        "max_model_len": service.llm.max_model_len,
        "tokens": list(token_ids),
        "token_strs": strings,
    }


async def _token_ids(service: ChatService, body: TokenizeBody) -> Sequence[int]:
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("give either prompt or messages", "prompt")
    if body.messages is not None:
        return (await service.encode(_conversation(body, body.messages))).token_ids
    chat_only = ("tools", "add_generation_prompt", "chat_template_kwargs")
    for name in chat_only:
        if getattr(body, name) is not None:
            raise RequestError(f"{name} goes with messages only, not with prompt", name)
    prompt = body.prompt or ""
    if body.add_special_tokens is False:
        encode = partial(service.llm.tokenizer.encode, parse_special=True)
        return await asyncio.to_thread(encode, prompt)
    return (await service.llm.encode(prompt)).token_ids


def _conversation(body: TokenizeBody, messages: Sequence[Message]) -> ChatRequest:
    if body.add_special_tokens:
        raise RequestError(
            "add_special_tokens goes with prompt only: a conversation has what the model's chat "
            "template writes",
            "add_special_tokens",
        )
    variables = template_variables(body.chat_template_kwargs)
    if body.add_generation_prompt is not None:
        variables["add_generation_prompt"] = body.add_generation_prompt
    return ChatRequest(
        request_id="tokenize",
        messages=normalize(messages),
        params=SamplingParams(),
        tools=tool_specs(body.tools or ()),
        variables=variables,
    )


def _decode(service: ChatService, token_ids: Sequence[int]) -> str:
    tokenizer = service.llm.tokenizer
    for index, token_id in enumerate(token_ids):
        if token_id >= tokenizer.vocab_size:
            raise RequestError(
                f"tokens[{index}] is {token_id}: this model's ids go from 0 to "
                f"{tokenizer.vocab_size - 1}",
                f"tokens[{index}]",
            )
    return tokenizer.decode(token_ids, skip_special=False)
