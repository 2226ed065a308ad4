"""What both kinds of completion do with a request: who asks, how errors and streams are sent.

Not here: what either of them answers (chat, completions).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from firstword.errors import ConfigError
from firstword.server import sse
from firstword.server.chat import ChatService
from firstword.server.errors import (
    UnknownModelError,
    log_internal,
    openai_response,
    report,
)
from firstword.server.openai.envelope import StreamForm, error_chunk
from firstword.server.openai.params import field_of
from firstword.server.openai.schema import SharedBody


def caller_of(request: Request) -> tuple[str, str]:
    """(whose request it is, what its cached blocks are salted with), as the app found out."""
    state = request.state
    return str(getattr(state, "key", "")), str(getattr(state, "salt", ""))


def check_model(model: str, service: ChatService) -> None:
    """Refuse a model that is not served.

    Raises:
        UnknownModelError: `model` is neither the name clients know nor the model's own.
    """
    if model not in (service.name, service.llm.name):
        raise UnknownModelError(
            f"there is no model {model[:80]!r}: this server has {service.name!r}", "model"
        )


def stream_form(body: SharedBody) -> StreamForm:
    """What a stream is to carry."""
    options = body.stream_options
    return StreamForm(
        include_usage=options is not None and options.include_usage is True,
        continuous_usage=options is not None and options.continuous_usage_stats is True,
        progress=body.return_progress is True,
    )


def json_response(body: bytes) -> Response:
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
        _ended(chunks), lambda error: refuse(error, body), keep_alive=keep_alive
    )


async def _ended(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The chunks, then the end; an error after the first of them becomes a chunk as well."""
    started = False
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                started = True
                yield chunk
    except Exception as error:
        if not started:
            raise
        log_internal(error)
        yield error_chunk(report(error))
    yield sse.DONE


def refuse(error: Exception, body: SharedBody) -> Response:
    """An error as a response that names the field it is about, where that is known."""
    log_internal(error)
    param = field_of(error, body) if isinstance(error, ConfigError) else None
    return openai_response(error, param)
