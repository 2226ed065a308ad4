"""How both kinds of completion are sent: whole, as a stream, or as an error.

Not here: what either of them answers (chat, completions).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from firstword.errors import ConfigError
from firstword.server import sse
from firstword.server.bodies import read_json, validate
from firstword.server.chat import ChatService
from firstword.server.errors import log_internal, openai_response, report
from firstword.server.fields import Field, drop_unsupported
from firstword.server.openai.envelope import StreamForm
from firstword.server.openai.params import field_of
from firstword.server.openai.schema import SharedBody
from firstword.server.responses import json_bytes

Body = TypeVar("Body", bound=SharedBody)


async def answered(
    request: Request,
    service: ChatService,
    kind: tuple[type[Body], tuple[Field, ...]],
    answer: Callable[[Request, Body], Awaitable[Response]],
) -> Response:
    """Read a body, check it, and answer it; what it asks for in vain is refused by its field.

    Args:
        request: with the body.
        service: knows the model's name.
        kind: of the body, and the table of its fields.
        answer: makes the answer.
    """
    body_type, fields = kind
    body = validate(body_type, drop_unsupported(await read_json(request), fields))
    service.check_model(body.model)
    try:
        return await answer(request, body)
    except ConfigError as error:
        return refuse(error, body)


def stream_form(body: SharedBody) -> StreamForm:
    """What a stream is to carry."""
    options = body.stream_options
    return StreamForm(
        include_usage=options is not None and options.include_usage is True,
        continuous_usage=options is not None and options.continuous_usage_stats is True,
        progress=body.return_progress is True,
    )


def whole_response(body: bytes) -> Response:
    """A whole answer."""
    return Response(body, media_type="application/json")


def stream_response(
    chunks: AsyncGenerator[bytes, None], body: SharedBody, keep_alive: float
) -> Response:
    """A stream of chunks, ended by [DONE].

    Args:
        chunks: of the answer.
        body: whose fields errors name.
        keep_alive: seconds of silence after which a comment is sent.
    """
    return sse.EventResponse(
        _ended(chunks),
        lambda error: refuse(error, body),
        lambda error: _error_chunk(error, body) + sse.DONE,
        keep_alive=keep_alive,
    )


async def _ended(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(chunks):
        async for chunk in chunks:
            yield chunk
    yield sse.DONE


def refuse(error: Exception, body: SharedBody) -> Response:
    """An error as a response that names the field it is about, where that is known."""
    log_internal(error)
    return openai_response(error, _param(error, body))


def _error_chunk(error: Exception, body: SharedBody) -> bytes:
    log_internal(error)
    told = report(error, _param(error, body))
    return sse.event(json_bytes(told.openai()))


def _param(error: Exception, body: SharedBody) -> str | None:
    return field_of(error, body) if isinstance(error, ConfigError) else None
