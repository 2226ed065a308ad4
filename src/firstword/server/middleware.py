"""What surrounds every API: ids, limits, keys, and that no error ends the process.

Plain ASGI: a layer per request, and nothing per piece of a stream but one call. Not here: what an
API answers.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firstword.server.auth import Authenticator
from firstword.server.drain import Drain
from firstword.server.errors import (
    INTERNAL,
    KINDS,
    AuthenticationError,
    BodyTooLargeError,
    ErrorKind,
    ShuttingDownError,
)
from firstword.server.log import SERVER, RequestRecord, current_request, log_request
from firstword.server.refusal import Refusal, send_refusal

Check = Callable[[Scope], Refusal | None]
"""Looks at a request's head: None lets it pass."""

OPEN_PATHS = frozenset({"/", "/health", "/ready"})
"""What needs no key and is answered while the server ends: nothing of these concerns a user."""

_INVALID = "invalid_request_error"
_TOO_MANY_HEADERS = ErrorKind(431, _INVALID, "headers_too_large", _INVALID)
_WRONG_HOST = ErrorKind(403, _INVALID, "host_not_allowed", "permission_error")
_WRONG_ORIGIN = ErrorKind(403, _INVALID, "origin_not_allowed", "permission_error")
_SLOW_BODY = ErrorKind(408, _INVALID, "body_timeout", _INVALID)

_UNFIT_FOR_ID = re.compile(rb"[^A-Za-z0-9._:-]+")
_MAX_ID = 64


class RequestContext:
    """Gives each request its id and record, and logs it when it has ended. Outermost.

    Args:
        app: what answers.
        drain: counts what runs.
        on_end: told of each request that ended, and of its route.
        time_limit: seconds after which a request is cut off that its API did not end itself, for
            example because its client does not read; None for no limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        drain: Drain,
        on_end: Callable[[RequestRecord, str], None],
        time_limit: float | None = None,
    ) -> None:
        self._app, self._drain, self._on_end, self._limit = app, drain, on_end, time_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = _record_of(scope)
        scope.setdefault("state", {}).update(request_id=record.request_id, key="", salt="")
        id_header = (b"x-request-id", record.request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                message = {**message, "headers": [*message["headers"], id_header]}
            await send(message)

        token = current_request.set(record)
        self._drain.num_running += 1
        try:
            async with asyncio.timeout(self._limit):
                await self._app(scope, receive, send_with_id)
        except TimeoutError:
            SERVER.warning("a request was cut off", extra={"fields": {"id": record.request_id}})
        finally:
            self._drain.num_running -= 1
            current_request.reset(token)
            record.key = scope["state"]["key"]
            self._on_end(record, getattr(scope.get("route"), "path", ""))
            log_request(record)


def _record_of(scope: Scope) -> RequestRecord:
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    cleaned = _UNFIT_FOR_ID.sub(b"", given[: 4 * _MAX_ID])[:_MAX_ID].decode()
    client = scope.get("client")
    return RequestRecord(
        request_id=cleaned or f"req-{secrets.token_hex(12)}",
        method=scope["method"],
        path=scope["path"],
        client=client[0] if client else "",
    )


class ExceptionBarrier:
    """Turns whatever is raised into a 500 of the family called; the process lives on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = False

        async def watched_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except Exception:
            if scope["type"] != "http":
                raise
            request_id = scope["state"]["request_id"]
            SERVER.exception("unexpected error", extra={"fields": {"id": request_id}})
            if started:
                return  # the answer is cut off, which its reader sees
            message = f"the server failed on this request; its log says why, under {request_id}"
            await send_refusal(scope, send, Refusal(INTERNAL, message))


class Gate:
    """Refuses requests by their head alone, before anything of their body is read.

    Args:
        app: what answers those that pass.
        checks: asked in this order.
    """

    def __init__(self, app: ASGIApp, checks: tuple[Check, ...]) -> None:
        self._app, self._checks = app, checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            for check in self._checks:
                refusal = check(scope)
                if refusal is not None:
                    await send_refusal(scope, send, refusal)
                    return
        await self._app(scope, receive, send)


def limit_header(max_bytes: int) -> Check:
    """Refuse targets and headers of more than `max_bytes` together (431)."""

    def check(scope: Scope) -> Refusal | None:
        size = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        if size <= max_bytes:
            return None
        message = f"the headers have {size} bytes: at most {max_bytes} are read"
        return Refusal(_TOO_MANY_HEADERS, message, closes=True)

    return check


def check_host(names: frozenset[str] | None) -> Check:
    """Refuse requests that call the server by a name which is not its own (403).

    Args:
        names: those it has, in lower case; None: any.
    """

    def check(scope: Scope) -> Refusal | None:
        host = _header(scope, b"host")
        if names is None or not host or _hostname(f"//{host}") in names:
            return None
        message = (
            f"this server does not answer to the name {host[:100]!r}: start it with "
            "--allowed-host to add one"
        )
        return Refusal(_WRONG_HOST, message)

    return check


def check_origin(origins: tuple[str, ...]) -> Check:
    """Refuse what pages of other sites send here without being asked (403).

    A browser sends simple requests to any address, and only then asks whether the page may read
    the answer; by then a model has computed it. With API keys no such page gets this far.

    Args:
        origins: those whose pages may call, "*" for all.
    """

    def check(scope: Scope) -> Refusal | None:
        origin = _header(scope, b"origin")
        if not origin or scope["method"] in ("GET", "HEAD", "OPTIONS") or "*" in origins:
            return None
        if origin in origins or origin.partition("://")[2] == _header(scope, b"host"):
            return None
        message = (
            f"pages of {origin[:100]!r} may not call this server: start it with --cors-origin to "
            "allow them"
        )
        return Refusal(_WRONG_ORIGIN, message)

    return check


def authenticate(
    authenticator: Authenticator, open_paths: frozenset[str], isolate: bool = False
) -> Check:
    """Refuse requests without a known key (401); note whose it is in the request's state.

    Args:
        authenticator: knows the keys.
        open_paths: paths that need none.
        isolate: requests of different keys share no cached blocks.
    """

    def check(scope: Scope) -> Refusal | None:
        if scope["path"] in open_paths:
            return None
        owner = authenticator.owner(scope["headers"])
        if owner is None:
            message = (
                "no valid API key: send one as 'Authorization: Bearer KEY' or 'x-api-key: KEY'"
            )
            return Refusal(KINDS[AuthenticationError], message, {"www-authenticate": "Bearer"})
        scope["state"].update(key=owner, salt=owner if isolate else "")
        return None

    return check


def refuse_when_draining(drain: Drain, on_refused: Callable[[], None]) -> Check:
    """Refuse new requests once the server is told to stop (503).

    Args:
        drain: tells whether it is.
        on_refused: told of each.
    """

    def check(scope: Scope) -> Refusal | None:
        if not drain.has_begun or scope["path"] in OPEN_PATHS or scope["path"] == "/metrics":
            return None
        on_refused()
        seconds = max(1, round(drain.seconds_left))
        message = f"the server is shutting down: try again in {seconds} s"
        headers = {"retry-after": str(seconds)}
        return Refusal(KINDS[ShuttingDownError], message, headers, closes=True)

    return check


class _TooLargeError(Exception):
    """A body beyond the limit."""


class BodyReader:
    """Reads a request's body before anybody else sees the request.

    So a body that is too large (413) or too slow (408) is refused in one place, whatever length
    it announces, and a client that leaves while it sends costs nothing more.

    Args:
        app: what answers; it receives the body in one piece.
        max_bytes: most bytes of a body.
        timeout: seconds in which a body must have come.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, timeout: float) -> None:
        self._app, self._max_bytes, self._timeout = app, max_bytes, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self._app(scope, receive, send)
            return
        body = await self._read(scope, receive)
        if isinstance(body, Refusal):
            await send_refusal(scope, send, body)
        elif body is not None:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | Refusal | None:
        """The body, or why it is refused; None when the client has left."""
        announced = _header(scope, b"content-length")
        try:
            if announced.isdecimal() and int(announced[:20]) > self._max_bytes:
                raise _TooLargeError
            async with asyncio.timeout(self._timeout):
                return await self._collect(receive)
        except _TooLargeError:
            message = f"the body is larger than {self._max_bytes} bytes, the most that is read"
            return Refusal(KINDS[BodyTooLargeError], message)
        except TimeoutError:
            message = f"the body did not come within {self._timeout:g} s"
            return Refusal(_SLOW_BODY, message, closes=True)

    async def _collect(self, receive: Receive) -> bytes | None:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                raise _TooLargeError
            if not message.get("more_body", False):
                return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the whole body first, then what comes after it."""
    is_given = False

    async def receive_again() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _header(scope: Scope, name: bytes) -> str:
    """A header's first value; "" without one."""
    return next((v.decode("latin-1") for n, v in scope["headers"] if n == name), "")


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
