"""The API's paths: bodies in, messages, events and errors out.

Not here: what fields mean (conversation), how answers are written (message, stream).
"""

from __future__ import annotations

import secrets
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from firstword.engine.request import RequestOptions
from firstword.server.anthropic.conversation import chat_request
from firstword.server.anthropic.fields import COUNT_FIELDS, MESSAGE_FIELDS
from firstword.server.anthropic.message import answer
from firstword.server.anthropic.schema import AnthropicErrorBody, CountBody, MessageBody
from firstword.server.anthropic.stream import PING, error_event, events
from firstword.server.auth import caller_of
from firstword.server.bodies import read_json, validate
from firstword.server.chat import ChatRequest, ChatService
from firstword.server.disconnect import unless_gone
from firstword.server.errors import Endpoint, answers_errors, log_internal, report
from firstword.server.fields import Field, drop_unsupported
from firstword.server.openapi import errors_of_bodies, request_body
from firstword.server.responses import json_response
from firstword.server.sse import EventResponse


def router(service: ChatService, *, keep_alive: float = 15.0) -> APIRouter:
    """The routes of the Anthropic API.

    Args:
        service: runs the requests.
        keep_alive: seconds of silence after which a stream sends a ping, above 0.
    """
    routes = APIRouter(tags=["Anthropic"])
    endpoints = MessageEndpoints(service, keep_alive)
    _add(routes, "/v1/messages", endpoints.create, MessageBody, MESSAGE_FIELDS)
    _add(routes, "/v1/messages/count_tokens", endpoints.count_tokens, CountBody, COUNT_FIELDS)
    return routes


class MessageEndpoints:
    """Answers conversations and counts their tokens.

    Args:
        service: runs the requests.
        keep_alive: seconds of silence after which a stream sends a ping.
    """

    def __init__(self, service: ChatService, keep_alive: float) -> None:
        self._service, self._keep_alive = service, keep_alive

    async def create(self, request: Request) -> Response:
        """The model's next message of a conversation, whole or streamed."""
        given = drop_unsupported(await read_json(request), MESSAGE_FIELDS)
        body = validate(MessageBody, given)
        chat = self._chat(body, request)
        if body.stream:
            return self._stream(chat, _request_id(request))
        whole = await unless_gone(request.receive, answer(self._service, chat))
        return json_response(whole)

    async def count_tokens(self, request: Request) -> Response:
        """How many tokens the model would read."""
        body = validate(CountBody, drop_unsupported(await read_json(request), COUNT_FIELDS))
        prompt = await self._service.encode(self._chat(body, request))
        return json_response({"input_tokens": len(prompt.token_ids)})

    def _chat(self, body: CountBody, request: Request) -> ChatRequest:
        self._service.check_model(body.model)
        key, salt = caller_of(request)
        options = RequestOptions(key=key, salt=salt)
        return chat_request(body, f"msg_{secrets.token_hex(12)}", options)

    def _stream(self, chat: ChatRequest, request_id: str) -> Response:
        def refuse(error: Exception) -> Response:
            log_internal(error)
            return error_response(error, request_id)

        def last_words(error: Exception) -> bytes:
            log_internal(error)
            return error_event(error, request_id)

        return EventResponse(
            events(self._service, chat),
            refuse,
            last_words,
            keep_alive=self._keep_alive,
            keep_alive_bytes=PING,
            headers={"request-id": request_id},
        )


def error_response(error: BaseException, request_id: str) -> Response:
    """An error as a response of the API.

    Args:
        error: anything that was raised.
        request_id: of the HTTP request, by which the server's log knows it.
    """
    told = report(error)
    body = {**told.anthropic(), "request_id": request_id}
    return json_response(body, told.kind.status, told.headers)


def _add(
    routes: APIRouter,
    path: str,
    endpoint: Endpoint,
    body: type[CountBody],
    fields: tuple[Field, ...],
) -> None:
    async def named(request: Request) -> Response:
        request_id = _request_id(request)
        respond = partial(error_response, request_id=request_id)
        response = await answers_errors(endpoint, respond)(request)
        response.headers["request-id"] = request_id
        return response

    named.__name__, named.__doc__ = endpoint.__name__, endpoint.__doc__
    routes.add_api_route(
        path,
        named,
        methods=["POST"],
        response_model=None,
        responses=errors_of_bodies(AnthropicErrorBody),
        openapi_extra=request_body(
            body, (field.name for field in fields if field.decision == "inert")
        ),
    )


def _request_id(request: Request) -> str:
    """Of the HTTP request, as the app gave it one."""
    given: str | None = getattr(request.state, "request_id", None)
    if given is None:
        given = request.state.request_id = f"req_{secrets.token_hex(12)}"
    return given
