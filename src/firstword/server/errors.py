"""What a client is told when something fails: one table from exception to status, type and code.

Not here: what went wrong (firstword.errors), and when an error is raised.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from firstword.errors import (
    CapacityError,
    ChatTemplateError,
    ConfigError,
    EngineDiedError,
    FirstwordError,
    GrammarError,
    PromptTooLongError,
    QueueFullError,
    SamplingError,
    StepStoppedError,
)
from firstword.server.disconnect import CLIENT_GONE_STATUS, ClientGoneError
from firstword.server.responses import json_response

_log = logging.getLogger(__name__)

RESTART_SECONDS = 5.0
"""After which an engine that died should serve again."""

MAX_MESSAGE = 2000
"""Characters of a message; what it quotes came from the client and can be as long as a body."""


class RequestError(FirstwordError):
    """The request itself is at fault, and the same request will fail again.

    Args:
        problem: the value, the limit and the remedy.
        param: the field at fault, such as "messages[2].content"; None for the whole.
        code: a word that programs compare; None for the one of the table.
    """

    def __init__(self, problem: str, param: str | None = None, code: str | None = None) -> None:
        self.problem, self.param, self.code = problem, param, code
        super().__init__(problem)


class UnsupportedFieldError(RequestError):
    """A field that would change the output and is not supported, or that no API has."""


class UnknownModelError(RequestError):
    """The request names a model that is not served."""


class NotFoundError(RequestError):
    """There is nothing under this path."""


class MethodNotAllowedError(RequestError):
    """The path has no such method."""


class AuthenticationError(RequestError):
    """No valid API key came with the request."""


class BodyTooLargeError(RequestError):
    """The body is larger than the server reads."""


class UnsupportedMediaTypeError(RequestError):
    """The body is not sent as JSON."""


class RequestTimeoutError(FirstwordError):
    """The request took longer than the server allows."""


class ShuttingDownError(FirstwordError):
    """The server ends and takes no new requests."""


@dataclass(frozen=True)
class ErrorKind:
    """How one kind of exception is told to clients.

    Args:
        status: HTTP status, 400 to 599.
        openai_type: `error.type` of the OpenAI API.
        code: `error.code` of the OpenAI API.
        anthropic_type: `error.type` of the Anthropic API.
    """

    status: int
    openai_type: str
    code: str | None
    anthropic_type: str


_INVALID = "invalid_request_error"

KINDS: Mapping[type[BaseException], ErrorKind] = {
    PromptTooLongError: ErrorKind(400, _INVALID, "context_length_exceeded", _INVALID),
    GrammarError: ErrorKind(400, _INVALID, "invalid_grammar", _INVALID),
    ConfigError: ErrorKind(400, _INVALID, "invalid_value", _INVALID),
    ChatTemplateError: ErrorKind(400, _INVALID, "invalid_messages", _INVALID),
    CapacityError: ErrorKind(400, _INVALID, "capacity_exceeded", _INVALID),
    UnsupportedFieldError: ErrorKind(400, _INVALID, "unsupported_parameter", _INVALID),
    UnknownModelError: ErrorKind(404, _INVALID, "model_not_found", "not_found_error"),
    NotFoundError: ErrorKind(404, _INVALID, "not_found", "not_found_error"),
    MethodNotAllowedError: ErrorKind(405, _INVALID, "method_not_allowed", _INVALID),
    AuthenticationError: ErrorKind(401, _INVALID, "invalid_api_key", "authentication_error"),
    BodyTooLargeError: ErrorKind(413, _INVALID, "body_too_large", "request_too_large"),
    UnsupportedMediaTypeError: ErrorKind(415, _INVALID, "unsupported_media_type", _INVALID),
    RequestError: ErrorKind(400, _INVALID, "invalid_value", _INVALID),
    RequestTimeoutError: ErrorKind(504, "server_error", "timeout", "timeout_error"),
    ShuttingDownError: ErrorKind(503, "server_error", "shutting_down", "overloaded_error"),
    QueueFullError: ErrorKind(503, "server_error", "queue_full", "overloaded_error"),
    EngineDiedError: ErrorKind(503, "server_error", "engine_restarting", "api_error"),
    StepStoppedError: ErrorKind(503, "server_error", "step_stopped", "api_error"),
    SamplingError: ErrorKind(500, "server_error", "sampling_failed", "api_error"),
}
"""The nearest class of an exception counts; what has none is `INTERNAL`."""

KEY_QUEUE_FULL = ErrorKind(429, "rate_limit_error", "rate_limit_exceeded", "rate_limit_error")
"""A QueueFullError that concerns one key: others may still come."""

INTERNAL = ErrorKind(500, "server_error", "internal_error", "api_error")


@dataclass(frozen=True)
class ErrorReport:
    """One error as a client is told it.

    Args:
        kind: its row of the table.
        message: what is wrong, in words.
        param: the field at fault, None if it is none or many.
        code: `kind.code`, or the one that the exception names.
        retry_after: seconds after which to try again; None where that would not help.
    """

    kind: ErrorKind
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None

    @property
    def headers(self) -> dict[str, str]:
        """`Retry-After` in whole seconds, at least 1, where there is one."""
        if self.retry_after is None:
            return {}
        return {"retry-after": str(max(1, math.ceil(self.retry_after)))}

    def openai(self) -> dict[str, object]:
        """The body of the OpenAI API: {"error": {message, type, param, code}}."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind.openai_type,
                "param": self.param,
                "code": self.code,
            }
        }

    def anthropic(self) -> dict[str, object]:
        """The body of the Anthropic API: {"type": "error", "error": {type, message}}."""
        error = {"type": self.kind.anthropic_type, "message": self.message}
        return {"type": "error", "error": error}


def report(error: BaseException, param: str | None = None) -> ErrorReport:
    """What to tell a client of an exception.

    An exception that is not of firstword says nothing of itself: its text may hold what is nobody
    else's business. Whoever catches it logs it.

    Args:
        error: anything that was raised.
        param: the field at fault, where the error itself does not name one.
    """
    kind = _kind(error)
    if isinstance(error, RequestError) and error.param:
        param = error.param
    if kind is INTERNAL:
        message = "the server failed on this request; its log says why"
    else:
        message = str(error) or type(error).__name__
    return ErrorReport(
        kind=kind,
        message=_printable(message),
        param=None if param is None else _printable(param),
        code=error.code if isinstance(error, RequestError) and error.code else kind.code,
        retry_after=_retry_after(error),
    )


def _retry_after(error: BaseException) -> float | None:
    if isinstance(error, QueueFullError):
        return error.retry_after
    restarts = isinstance(error, EngineDiedError | ShuttingDownError | StepStoppedError)
    return RESTART_SECONDS if restarts else None


def _kind(error: BaseException) -> ErrorKind:
    if isinstance(error, QueueFullError) and error.key_only:
        return KEY_QUEUE_FULL
    for cls in type(error).__mro__:
        if cls in KINDS:
            return KINDS[cls]
    return INTERNAL


def _printable(text: str) -> str:
    # A lone surrogate of the request may be quoted in the message, and no UTF-8 can write it.
    return text[:MAX_MESSAGE].encode("utf-8", errors="replace").decode()


def openai_response(error: BaseException, param: str | None = None) -> Response:
    """An error as a response of the OpenAI API.

    Args:
        error: anything that was raised.
        param: the field at fault, where the error itself does not name one.
    """
    told = report(error, param)
    return json_response(told.openai(), told.kind.status, told.headers)


def anthropic_response(error: BaseException) -> Response:
    """An error as a response of the Anthropic API."""
    told = report(error)
    return json_response(told.anthropic(), told.kind.status, told.headers)


def log_internal(error: BaseException) -> None:
    """Log what is nobody's doing but the server's, with where it came from."""
    if _kind(error) is INTERNAL:
        _log.error("a request failed", exc_info=error)


Endpoint = Callable[[Request], Awaitable[Response]]


def answers_errors(endpoint: Endpoint, respond: Callable[[BaseException], Response]) -> Endpoint:
    """An endpoint whose errors are answered in its API's words; nothing is raised from it.

    Args:
        endpoint: takes the request.
        respond: `openai_response` or `anthropic_response`.
    """

    @wraps(endpoint)
    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (ClientGoneError, ClientDisconnect):
            return Response(status_code=CLIENT_GONE_STATUS)
        except Exception as error:
            log_internal(error)
            return respond(error)

    return answered
