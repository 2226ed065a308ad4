"""The paths of the OpenAI API, and what its page says of them.

Not here: what they do (models, chat, completions).
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from pydantic import BaseModel

from firstword.server.chat import ChatService
from firstword.server.errors import Endpoint, answers_errors, openai_response
from firstword.server.fields import Field
from firstword.server.openai.chat import ChatEndpoint
from firstword.server.openai.completions import CompletionEndpoint
from firstword.server.openai.fields import CHAT_FIELDS, COMPLETION_FIELDS
from firstword.server.openai.models import ModelEndpoint
from firstword.server.openai.schema import ChatBody, CompletionBody, ErrorBody
from firstword.server.openapi import errors_of_bodies, errors_of_heads, request_body

_NOT_SERVED = {"description": "A model that is not served.", "model": ErrorBody}
_MODEL_ERRORS = errors_of_heads(ErrorBody) | {404: _NOT_SERVED}


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
    return request_body(model, (field.name for field in fields if field.decision == "inert"))


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
        responses=errors_of_bodies(ErrorBody) if method == "POST" else _MODEL_ERRORS,
        openapi_extra=extra,
    )
