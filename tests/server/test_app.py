from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from firstword.sampling.params import SamplingParams
from firstword.server.app import Operations, create_app
from firstword.server.auth import ApiKey
from firstword.server.observed import OperatedLLM
from firstword.server.settings import ServerSettings
from tests.server.fake_engine import FakeEngine

Act = Callable[[httpx.AsyncClient], Awaitable[None]]


def client_of(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def with_echo(llm: OperatedLLM | None = None, settings: ServerSettings | None = None) -> FastAPI:
    """The app with routes that say what reached them."""
    app = create_app(llm or FakeEngine(), settings)

    async def echo(request: Request) -> dict[str, object]:
        return {"key": request.state.key, "body": await request.json()}

    async def fail() -> None:
        raise ZeroDivisionError("secret detail")

    async def talk() -> StreamingResponse:
        operations: Operations = app.state.operations
        deltas = operations.llm.stream("x", SamplingParams())
        return StreamingResponse(delta.text async for delta in deltas)

    app.add_api_route("/v1/echo", echo, methods=["POST"])
    app.add_api_route("/v1/messages/echo", echo, methods=["POST"])
    app.add_api_route("/v1/fail", fail)
    app.add_api_route("/v1/messages/fail", fail)
    app.add_api_route("/v1/talk", talk, methods=["POST"])
    return app


def run(app: FastAPI, act: Act) -> None:
    async def session() -> None:
        async with client_of(app) as client:
            await act(client)

    asyncio.run(session())


def test_it_lives_and_is_ready() -> None:
    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.get("/health")).json() == {"status": "ok"}
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (200, "ready")

    run(create_app(FakeEngine()), act)


@pytest.mark.parametrize("path", ["/v1/echo", "/v1/messages/echo"])
def test_keys_are_asked_for_in_the_shape_of_the_family(path: str) -> None:
    keys = (ApiKey.parse("ann:secret-of-ann", ""), ApiKey.parse("bob:secret-of-bob", ""))

    async def act(client: httpx.AsyncClient) -> None:
        refused = await client.post(path, json={}, headers={"x-api-key": "guess"})
        assert refused.status_code == 401
        error = refused.json()["error"]
        if "messages" in path:
            assert (refused.json()["type"], error["type"]) == ("error", "authentication_error")
        else:
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        for headers, owner in (
            ({"authorization": "Bearer secret-of-ann"}, "ann"),
            ({"x-api-key": "secret-of-bob"}, "bob"),
        ):
            allowed = await client.post(path, json={}, headers=headers)
            assert (allowed.status_code, allowed.json()["key"]) == (200, owner)
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/metrics")).status_code == 401

    run(with_echo(settings=ServerSettings(api_keys=keys)), act)


def test_large_bodies_are_refused_whatever_they_announce() -> None:
    async def chunks(size: int) -> object:
        for _ in range(size):
            yield b" "

    async def act(client: httpx.AsyncClient) -> None:
        for content in (b" " * 101, chunks(101)):
            answer = await client.post("/v1/echo", content=content)  # type: ignore[arg-type]
            assert answer.status_code == 413
            assert "100 bytes" in answer.json()["error"]["message"]
        assert (await client.post("/v1/echo", content=b"[]" + b" " * 98)).status_code == 200

    run(with_echo(settings=ServerSettings(max_body_bytes=100)), act)


def test_p27_an_unexpected_error_is_a_500_and_the_next_request_is_fine() -> None:
    async def act(client: httpx.AsyncClient) -> None:
        for path, kind in (("/v1/fail", "server_error"), ("/v1/messages/fail", "api_error")):
            answer = await client.get(path, headers={"x-request-id": "mine"})
            assert answer.status_code == 500
            error = answer.json()["error"]
            assert error["type"] == kind
            assert "mine" in error["message"] and "secret" not in answer.text
        assert (await client.post("/v1/talk")).text == "one two three"

    run(with_echo(), act)


def test_unknown_paths_and_methods_have_the_shape_of_the_family() -> None:
    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/nothing")).json()["error"]["code"] == "not_found"
        missing = await client.get("/v1/messages/nothing")
        assert missing.json()["error"]["type"] == "not_found_error"
        wrong = await client.get("/v1/echo")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert wrong.json()["error"]["code"] == "method_not_allowed"

    run(with_echo(), act)
