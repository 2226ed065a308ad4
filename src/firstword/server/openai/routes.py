"""The paths of the OpenAI API, and what its page says of them.

Not here: what they do (models, chat, completions).
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from pydantic import BaseModel

from firstword.server.bodies import openapi_body
from firstword.server.chat import ChatService
from firstword.server.errors import Endpoint, answers_errors, openai_response
from firstword.server.fields import Field
from firstword.server.openai.chat import ChatEndpoint
from firstword.server.openai.completions import CompletionEndpoint
from firstword.server.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS
from firstword.server.openai.models import ModelEndpoint
from firstword.server.openai.schema import ChatBody, CompletionBody

_ERRORS = {
    400: "A field that is wrong, unknown, or not supported; `error.param` names it.",
    401: "No valid API key.",
    404: "A model that is not served.",
    413: "The body is too large.",
    415: "The body is not sent as application/json.",
    429: "Too many requests of this key wait; `Retry-After` says when to come again.",
    500: "The server failed on this request.",
    503: "Too many requests wait, or the server restarts; `Retry-After` says when to come again.",
    504: "The request took too long.",
}


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Body of every answer that is an error."""

    error: ErrorDetail


def router(service: ChatService, *, keep_alive: float = 15.0) -> APIRouter:
    """The routes of the OpenAI API.

    Args:
        service: runs the requests.
        keep_alive: seconds of silence after which a stream sends a comment, above 0.
    """
    routes = APIRouter(tags=["OpenAI"])
    models = ModelEndpoint(service)
    _add(routes, "/v1/models", models.list, "GET")
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    _add(routes, "/v1/models/{model:path}", models.retrieve, "GET", {"parameters": [name]})
    chat, completion = ChatEndpoint(service, keep_alive), CompletionEndpoint(service, keep_alive)
    chat_body = _described(ChatBody, CHAT_FIELDS)
    _add(routes, "/v1/chat/completions", chat.create, "POST", chat_body)
    completion_body = _described(CompletionBody, COMPLETION_FIELDS)
    _add(routes, "/v1/completions", completion.create, "POST", completion_body)
    return routes


def _described(model: type[BaseModel], fields: Iterable[Field]) -> dict[str, object]:
    return openapi_body(model, (field.name for field in fields if field.decision == "inert"))


def _add(
    routes: APIRouter,
    path: str,
    endpoint: Endpoint,
    method: str,
    extra: dict[str, object] | None = None,
) -> None:
    routes.add_api_route(
        path,
        answers_errors(endpoint, openai_response),
        methods=[method],
        response_model=None,
        responses={
            status: {"description": text, "model": ErrorBody} for status, text in _ERRORS.items()
        },
        openapi_extra=extra,
    )
