"""Each layer alone, around an app of a few lines."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firstword.server.auth import ApiKey, Authenticator
from firstword.server.drain import Drain
from firstword.server.log import RequestRecord, current_request
from firstword.server.middleware import (
    BodyReader,
    Check,
    ExceptionBarrier,
    Gate,
    RequestContext,
    authenticate,
    check_host,
    check_origin,
    limit_header,
    refuse_when_draining,
)

Headers = Iterable[tuple[bytes, bytes]]


def scope_of(path: str = "/v1/x", headers: Headers = (), **others: object) -> Scope:
    state = {"request_id": "r1", "key": "", "salt": ""}
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers),
        "state": state,
        **others,
    }


@dataclass
class Exchange:
    """One request to an app, and what came back.

    Args:
        chunks: the body's; a number is a pause in seconds, None a client that leaves.
    """

    scope: Scope = field(default_factory=scope_of)
    chunks: list[bytes | float | None] = field(default_factory=lambda: [b""])
    sent: list[Message] = field(default_factory=list)
    num_received: int = 0

    async def receive(self) -> Message:
        chunk = self.chunks.pop(0) if self.chunks else None
        while isinstance(chunk, float):
            await asyncio.sleep(chunk)
            chunk = self.chunks.pop(0) if self.chunks else None
        if chunk is None:
            return {"type": "http.disconnect"}
        self.num_received += 1
        more = any(isinstance(left, bytes) for left in self.chunks)
        return {"type": "http.request", "body": chunk, "more_body": more}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    def run(self, app: ASGIApp) -> Exchange:
        async def call() -> None:
            await app(self.scope, self.receive, self.send)

        asyncio.run(call())
        return self

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


async def fail(scope: Scope, receive: Receive, send: Send) -> None:
    raise ZeroDivisionError("secret detail")


async def fail_late(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ZeroDivisionError("secret detail")


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


class Ended:
    def __init__(self) -> None:
        self.records: list[tuple[RequestRecord, str]] = []

    def __call__(self, record: RequestRecord, route: str) -> None:
        self.records.append((record, route))


def context(app: ASGIApp, ended: Ended | None = None, limit: float | None = None) -> ASGIApp:
    return RequestContext(app, Drain(1), ended or Ended(), limit)


# --- ids ---


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (b"client-1:2_x.y", b"client-1:2_x.y"),
        (b"a b\r\nset-cookie: x=1", b"abset-cookie:x1"),
        (b"\xff\xfe", None),
        (b"", None),
        (b"x" * 1000, b"x" * 64),
    ],
)
def test_ids_of_clients_are_cleaned_and_sent_back(given: bytes, told: bytes | None) -> None:
    exchange = Exchange(scope_of(headers=[(b"x-request-id", given)])).run(context(echo))
    request_id = exchange.headers[b"x-request-id"]
    if told is None:
        assert request_id.startswith(b"req-") and len(request_id) == 28
    else:
        assert request_id == told


def test_every_request_has_an_id_of_its_own() -> None:
    first, second = Exchange().run(context(echo)), Exchange().run(context(echo))
    assert first.headers[b"x-request-id"] != second.headers[b"x-request-id"]


def test_what_happened_is_told_at_the_end() -> None:
    ended = Ended()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        record = current_request.get()
        assert record is not None and record.request_id == scope["state"]["request_id"]
        record.model = "m"
        scope["state"]["key"] = "ann"
        await echo(scope, receive, send)

    Exchange(scope_of("/v1/x", client=("10.0.0.9", 5))).run(context(app, ended))
    record, route = ended.records[0]
    assert (record.status, record.key, record.model, route) == (200, "ann", "m", "")
    assert (record.path, record.client, record.method) == ("/v1/x", "10.0.0.9", "POST")


def test_running_requests_are_counted() -> None:
    drain, counts = Drain(1), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        counts.append(drain.num_running)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Exchange().run(RequestContext(app, drain, Ended()))
    assert (counts, drain.num_running) == ([1], 0)


def test_a_request_without_end_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    ended = Ended()
    logger = logging.getLogger("firstword.server")
    with caplog.at_level(logging.WARNING, logger.name):
        assert Exchange().run(context(hang, ended, 0.02)).sent == []
    assert ended.records[0][0].status == 0
    assert [record.getMessage() for record in caplog.records] == ["a request was cut off"]


def test_other_protocols_pass_through() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    layers = context(ExceptionBarrier(Gate(BodyReader(app, 1, 1), (check_host(frozenset()),))))
    Exchange({"type": "lifespan"}).run(layers)
    assert seen == ["lifespan"]


# --- the barrier ---


@pytest.mark.parametrize(
    ("path", "kind"), [("/v1/x", "server_error"), ("/v1/messages", "api_error")]
)
def test_p27_whatever_is_raised_becomes_a_500(
    path: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = Exchange(scope_of(path)).run(ExceptionBarrier(fail))
    error = json.loads(exchange.body)["error"]
    assert (exchange.status, error["type"]) == (500, kind)
    assert "r1" in error["message"] and b"secret" not in exchange.body
    assert "ZeroDivisionError: secret detail" in caplog.text, "the log has what the client has not"


def test_p27_an_answer_that_has_begun_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    exchange = Exchange().run(ExceptionBarrier(fail_late))
    assert len(exchange.sent) == 1
    assert "ZeroDivisionError" in caplog.text


# --- checks of the head ---


def test_the_gate_stops_at_the_first_refusal() -> None:
    asked: list[str] = []

    def named(name: str, inner: Check) -> Check:
        def check(scope: Scope) -> object:
            asked.append(name)
            return inner(scope)

        return check  # type: ignore[return-value]

    checks = (
        named("size", limit_header(100)),
        named("host", check_host(frozenset({"localhost"}))),
        named("never", limit_header(1)),
    )
    exchange = Exchange(scope_of(headers=[(b"host", b"evil.example")])).run(Gate(echo, checks))
    assert (exchange.status, asked) == (403, ["size", "host"])
    assert exchange.num_received == 0


@pytest.mark.parametrize(
    ("path", "query", "headers", "refused"),
    [
        ("/v1/x", b"", [(b"a", b"b" * 94)], False),
        ("/v1/x", b"", [(b"a", b"b" * 95)], True),
        ("/" + "x" * 101, b"", [], True),
        ("/v1/x", b"q" * 101, [], True),
        ("/v1/x", b"", [(b"a%d" % i, b"") for i in range(50)], True),
    ],
)
def test_large_heads_are_431(path: str, query: bytes, headers: Headers, refused: bool) -> None:
    scope = scope_of(path, headers, query_string=query)
    refusal = limit_header(100)(scope)
    assert (refusal is not None) is refused
    if refusal is not None:
        assert (refusal.kind.status, refusal.closes) == (431, True)
        assert "at most 100" in refusal.message


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        (b"localhost", True),
        (b"localhost:8000", True),
        (b"LOCALHOST:8000", True),
        (b"127.0.0.1:8000", True),
        (b"[::1]:8000", True),
        (b"evil.example", False),
        (b"localhost.evil.example", False),
        (b"localhost@evil.example", False),
        (b"[::1", False),
        (b"", True),
    ],
)
def test_a_page_that_renames_this_machine_is_refused(host: bytes, allowed: bool) -> None:
    check = check_host(frozenset({"localhost", "127.0.0.1", "::1"}))
    refusal = check(scope_of(headers=[(b"host", host)]))
    assert (refusal is None) is allowed
    if refusal is not None:
        assert refusal.kind.status == 403 and "--allowed-host" in refusal.message


def test_any_name_will_do_where_none_is_set() -> None:
    assert check_host(None)(scope_of(headers=[(b"host", b"whatever")])) is None


@pytest.mark.parametrize(
    ("origin", "method", "allowed"),
    [
        (b"", "POST", True),
        (b"http://localhost:8000", "POST", True),
        (b"https://chat.example", "POST", True),
        (b"https://evil.example", "POST", False),
        (b"https://evil.example", "GET", True),
        (b"null", "POST", False),
        (b"http://localhost:9999", "POST", False),
        (b"http://[bad", "POST", False),
    ],
)
def test_pages_of_other_sites_may_not_make_a_model_work(
    origin: bytes, method: str, allowed: bool
) -> None:
    headers = [(b"host", b"localhost:8000"), *([(b"origin", origin)] if origin else [])]
    refusal = check_origin(("https://chat.example",))(scope_of(headers=headers, method=method))
    assert (refusal is None) is allowed
    if refusal is not None:
        assert refusal.kind.status == 403 and "--cors-origin" in refusal.message


def test_all_pages_may_where_all_origins_are_allowed() -> None:
    headers = [(b"host", b"localhost"), (b"origin", b"https://evil.example")]
    assert check_origin(("*",))(scope_of(headers=headers)) is None


def test_whose_key_it_is_goes_into_the_state() -> None:
    key = ApiKey.parse("ann:secret-of-ann", "")
    check = authenticate(Authenticator((key,)), frozenset({"/health"}), isolate=True)
    scope = scope_of(headers=[(b"x-api-key", b"secret-of-ann")])
    assert check(scope) is None
    assert (scope["state"]["key"], scope["state"]["salt"]) == ("ann", "ann")
    assert check(scope_of("/health")) is None
    refusal = check(scope_of(headers=[(b"x-api-key", b"guess-guess")]))
    assert refusal is not None and refusal.kind.status == 401
    assert "guess" not in refusal.message


def test_new_requests_are_told_when_to_come_again() -> None:
    drain, refused = Drain(60), []
    check = refuse_when_draining(drain, lambda: refused.append(1))
    assert check(scope_of()) is None
    drain.begin()
    for path in ("/health", "/ready", "/metrics"):
        assert check(scope_of(path)) is None
    refusal = check(scope_of())
    assert refusal is not None and (refusal.kind.status, refusal.closes) == (503, True)
    assert 1 <= int(refusal.headers["retry-after"]) <= 60
    assert refused == [1]


# --- bodies ---


def test_a_body_comes_in_one_piece_and_then_the_disconnect() -> None:
    messages: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        messages.extend([await receive(), await receive()])
        await send({"type": "http.response.start", "status": 204, "headers": []})

    Exchange(chunks=[b"ab", b"", b"cd", None]).run(BodyReader(app, 4, 1))
    assert messages[0] == {"type": "http.request", "body": b"abcd", "more_body": False}
    assert messages[1] == {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("headers", "chunks", "num_received"),
    [
        ([(b"content-length", b"6")], [b"abcdef"], 0),
        ([], [b"abc", b"def", b"never"], 2),
        ([(b"content-length", b"2")], [b"abc", b"def", b"never"], 2),
        ([(b"content-length", b"9" * 5000)], [b"abc"], 0),
    ],
)
def test_large_bodies_are_413_whatever_they_announce(
    headers: Headers, chunks: list[bytes | float | None], num_received: int
) -> None:
    exchange = Exchange(scope_of(headers=headers), chunks).run(BodyReader(echo, 5, 1))
    assert (exchange.status, exchange.num_received) == (413, num_received)
    assert "5 bytes" in json.loads(exchange.body)["error"]["message"]


def test_slow_bodies_are_408() -> None:
    exchange = Exchange(chunks=[b"ab", 5.0, b"cd"]).run(BodyReader(echo, 5, 0.02))
    assert (exchange.status, exchange.headers[b"connection"]) == (408, b"close")


def test_a_client_that_leaves_while_it_sends_is_forgotten() -> None:
    exchange = Exchange(chunks=[b"ab", None, b"cd"])
    asked: list[Callable[[], None]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(print)

    exchange.run(BodyReader(app, 5, 1))
    assert (exchange.sent, asked) == ([], [])


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_bodies_of_questions_are_not_read(method: str) -> None:
    exchange = Exchange(scope_of(method=method), [b"x" * 100]).run(BodyReader(echo, 5, 1))
    assert exchange.status == 200
