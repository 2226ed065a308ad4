"""The API's paths: bodies in, messages, events and errors out.

Not here: what fields mean (conversation), how answers are written (message, stream).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from firstword.engine.engine import RequestOptions
from firstword.errors import FirstwordError
from firstword.server.anthropic.conversation import chat_request
from firstword.server.anthropic.fields import COUNT_FIELDS, MESSAGE_FIELDS
from firstword.server.anthropic.message import answer
from firstword.server.anthropic.schema import CountBody, MessageBody
from firstword.server.anthropic.stream import PING, events
from firstword.server.bodies import openapi_body, read_json, validate
from firstword.server.chat import ChatRequest, ChatService
from firstword.server.disconnect import CLIENT_GONE_STATUS, ClientGoneError, unless_gone
from firstword.server.errors import log_internal, report
from firstword.server.openai.exchange import caller_of, check_model
from firstword.server.openai.fields import drop_unsupported
from firstword.server.sse import EventResponse


def router(service: ChatService, *, keep_alive: float = 15.0) -> APIRouter:
    """/v1/messages and /v1/messages/count_tokens.

    Args:
        service: answers.
        keep_alive: seconds without an event after which a stream sends a ping, above 0.
    """
    routes = APIRouter(tags=["Anthropic"])

    @routes.post(
        "/v1/messages",
        summary="Answer a conversation",
        openapi_extra=openapi_body(MessageBody),
        response_model=None,
    )
    async def create_message(request: Request) -> Response:
        http_id = _http_request_id(request)
        try:
            fields = drop_unsupported(await read_json(request), MESSAGE_FIELDS)
            body = validate(MessageBody, fields)
            chat = _chat_request(service, body, request)
            if body.stream:
                return EventResponse(
                    events(service, chat, http_id),
                    partial(refusal, http_request_id=http_id),
                    keep_alive=keep_alive,
                    keep_alive_bytes=PING,
                    headers={"request-id": http_id},
                )
            whole = await unless_gone(request.receive, answer(service, chat))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE_STATUS)
        except FirstwordError as error:
            return refusal(error, http_id)
        return _json_response(whole, http_id)

    @routes.post(
        "/v1/messages/count_tokens",
        summary="Count the tokens of a conversation",
        openapi_extra=openapi_body(CountBody),
        response_model=None,
    )
    async def count_tokens(request: Request) -> Response:
        http_id = _http_request_id(request)
        try:
            fields = drop_unsupported(await read_json(request), COUNT_FIELDS)
            chat = _chat_request(service, validate(CountBody, fields), request)
            prompt = await service.encode(chat)
        except FirstwordError as error:
            return refusal(error, http_id)
        return _json_response({"input_tokens": len(prompt.token_ids)}, http_id)

    return routes


def refusal(error: Exception, http_request_id: str) -> Response:
    """An error as a response of the API; one that nobody foresaw is logged too."""
    told = report(error)
    log_internal(error)
    body = {**told.anthropic(), "request_id": http_request_id}
    return _json_response(body, http_request_id, told.kind.status, told.headers)


def _chat_request(service: ChatService, body: CountBody, request: Request) -> ChatRequest:
    check_model(body.model, service)
    key, salt = caller_of(request)
    options = RequestOptions(key=key, salt=salt)
    return chat_request(body, f"msg_{secrets.token_hex(12)}", options)


def _http_request_id(request: Request) -> str:
    given: str | None = getattr(request.state, "request_id", None)
    return given or f"req_{secrets.token_hex(12)}"


def _json_response(
    body: Mapping[str, object],
    http_request_id: str,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> Response:
    return Response(
        json.dumps(body, ensure_ascii=False),
        status,
        headers={"request-id": http_request_id, **(headers or {})},
        media_type="application/json",
    )
