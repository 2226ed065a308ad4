from __future__ import annotations

import asyncio
import json
import logging

import httpx
import pytest

from firstword.errors import EngineDiedError
from firstword.kvcache.sources import PromptSources
from firstword.server.app import Operations, create_app
from firstword.server.auth import ApiKey
from firstword.server.settings import ServerSettings
from tests.server.fake_llm import Script
from tests.server.operated import CHAT, MESSAGE, OperatedFake, with_client

KEYS = (ApiKey.parse("ann:secret-of-ann", ""), ApiKey.parse("bob:secret-of-bob", ""))
BOTH_FAMILIES = [("/v1/chat/completions", CHAT), ("/v1/messages", MESSAGE)]


def test_it_lives_and_is_ready() -> None:
    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.get("/health")).json() == {"status": "ok"}
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready", "model": "fake:1m"})
        assert (await client.head("/health")).status_code == 200

    with_client(create_app(OperatedFake()), act)


def test_without_an_engine_it_lives_but_is_not_ready() -> None:
    llm = OperatedFake(is_ready=False, failure=EngineDiedError("ended by SIGKILL"))

    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.get("/health")).status_code == 200
        ready = await client.get("/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "ended by SIGKILL")
        llm.failure = None
        assert "being started" in (await client.get("/ready")).json()["reason"]

    with_client(create_app(llm), act)


def test_p26_a_hanging_engine_is_alive_and_not_ready() -> None:
    app = create_app(OperatedFake(Script(never_ends=True)), ServerSettings(stall_seconds=0.05))

    async def act(client: httpx.AsyncClient) -> None:
        request = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        operations: Operations = app.state.operations
        while not operations.llm.is_awaited:
            await asyncio.sleep(0.01)
        assert (await client.get("/ready")).status_code == 200
        await asyncio.sleep(0.1)
        ready = await client.get("/ready")
        assert ready.status_code == 503 and "no step" in ready.json()["reason"]
        assert (await client.get("/health")).status_code == 200
        request.cancel()

    with_client(app, act)


@pytest.mark.parametrize(("path", "body"), BOTH_FAMILIES)
def test_keys_are_asked_for_in_the_shape_of_the_family(path: str, body: dict[str, object]) -> None:
    llm = OperatedFake()

    async def act(client: httpx.AsyncClient) -> None:
        refused = await client.post(path, json=body, headers={"x-api-key": "guess"})
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        error = refused.json()["error"]
        if "messages" in path:
            assert (refused.json()["type"], error["type"]) == ("error", "authentication_error")
        else:
            assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        for headers in ({"authorization": "Bearer secret-of-ann"}, {"x-api-key": "secret-of-bob"}):
            assert (await client.post(path, json=body, headers=headers)).status_code == 200
        for open_path in ("/health", "/ready"):
            assert (await client.get(open_path)).status_code == 200
        assert (await client.get("/metrics")).status_code == 401

    with_client(create_app(llm, ServerSettings(api_keys=KEYS)), act)
    assert [request.options.key for request in llm.requests] == ["ann", "bob"]
    assert {request.options.salt for request in llm.requests} == {""}


def test_keys_can_be_kept_apart_and_metrics_open() -> None:
    llm = OperatedFake()
    settings = ServerSettings(api_keys=KEYS, isolate_keys=True, metrics_need_key=False)

    async def act(client: httpx.AsyncClient) -> None:
        headers = {"x-api-key": "secret-of-bob"}
        await client.post("/v1/chat/completions", json=CHAT, headers=headers)
        assert (await client.get("/metrics")).status_code == 200

    with_client(create_app(llm, settings), act)
    assert [request.options.salt for request in llm.requests] == ["bob"]


def test_the_model_can_have_another_name() -> None:
    async def act(client: httpx.AsyncClient) -> None:
        listed = (await client.get("/v1/models")).json()
        assert [entry["id"] for entry in listed["data"]] == ["house-model"]
        assert (await client.get("/ready")).json()["model"] == "house-model"

    with_client(create_app(OperatedFake(), ServerSettings(model_name="house-model")), act)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"x": NaN}',
        b'{"x": "\xff"}',
        b'{"model": "\\ud800"}',
        b"[" * 100_000,
        b'{"max_tokens": ' + b"9" * 10_000 + b"}",
        b"",
        b"null",
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/tokenize"])
def test_p27_bodies_that_are_no_json_are_400(path: str, body: bytes) -> None:
    async def act(client: httpx.AsyncClient) -> None:
        headers = {"content-type": "application/json"}
        answer = await client.post(path, content=body, headers=headers)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["type"] == "invalid_request_error"

    with_client(create_app(OperatedFake()), act)


@pytest.mark.parametrize(("path", "body"), BOTH_FAMILIES)
def test_p27_an_unexpected_error_is_a_500_and_the_next_request_is_fine(
    path: str, body: dict[str, object]
) -> None:
    llm = OperatedFake(Script(refusal=ZeroDivisionError("secret detail")))

    async def act(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, json=body)
        assert (answer.status_code, "secret" in answer.text) == (500, False)
        llm.script = Script()
        assert (await client.post(path, json=body)).status_code == 200

    with_client(create_app(llm), act)


def test_unknown_paths_and_methods_have_the_shape_of_the_family() -> None:
    async def act(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/nothing")).json()["error"]["code"] == "not_found"
        missing = await client.get("/v1/messages/nothing")
        assert missing.status_code == 404
        assert missing.json()["error"]["type"] == "not_found_error"
        wrong = await client.get("/v1/chat/completions")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert wrong.json()["error"]["code"] == "method_not_allowed"

    with_client(create_app(OperatedFake()), act)


@pytest.mark.parametrize(("path", "body"), BOTH_FAMILIES)
def test_a_request_that_takes_too_long_is_a_504(path: str, body: dict[str, object]) -> None:
    llm = OperatedFake(Script(never_ends=True))

    async def act(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, json=body)
        assert answer.status_code == 504
        assert "--request-timeout" in answer.json()["error"]["message"]

    with_client(create_app(llm, ServerSettings(request_timeout=0.05)), act)
    assert not llm.live and llm.aborted, "the engine no longer works on it"


@pytest.mark.parametrize(("path", "body"), BOTH_FAMILIES)
def test_a_stream_that_takes_too_long_ends_with_an_error_event(
    path: str, body: dict[str, object]
) -> None:
    llm = OperatedFake(Script(text="x" * 90, delay=0.02))

    async def act(client: httpx.AsyncClient) -> None:
        answer = await client.post(path, json={**body, "stream": True})
        assert answer.status_code == 200
        events = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
        errors = [e for e in events if e != "[DONE]" and "error" in json.loads(e)]
        assert len(errors) == 1
        assert "longer than 0.4 s" in errors[0]

    with_client(create_app(llm, ServerSettings(request_timeout=0.4)), act)
    assert not llm.live and llm.aborted


def test_pages_of_allowed_origins_may_call_and_read_errors() -> None:
    settings = ServerSettings(cors_origins=("https://chat.example",), api_keys=KEYS)

    async def act(client: httpx.AsyncClient) -> None:
        origin = {"origin": "https://chat.example"}
        asked = {**origin, "access-control-request-method": "POST"}
        asked["access-control-request-headers"] = "authorization,content-type"
        allowed = await client.options("/v1/chat/completions", headers=asked)
        assert allowed.status_code == 200
        refused = await client.post("/v1/chat/completions", json=CHAT, headers=origin)
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://chat.example"
        other = await client.get("/health", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers

    with_client(create_app(OperatedFake(), settings), act)


def test_other_names_and_other_sites_are_refused_on_this_machine() -> None:
    async def act(client: httpx.AsyncClient) -> None:
        path, host = "/v1/chat/completions", {"host": "evil.example"}
        assert (await client.post(path, json=CHAT, headers=host)).status_code == 403
        origin = {"origin": "https://evil.example"}
        assert (await client.post(path, json=CHAT, headers=origin)).status_code == 403
        own = {"origin": "http://localhost"}
        assert (await client.post(path, json=CHAT, headers=own)).status_code == 200

    with_client(create_app(OperatedFake()), act)


def test_a_finished_request_is_logged_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    llm = OperatedFake(Script(text="Hello", sources=PromptSources(3)))

    async def act(client: httpx.AsyncClient) -> None:
        for stream in (False, True):
            body = {**CHAT, "stream": stream}
            headers = {"x-api-key": "secret-of-ann", "x-request-id": "mine"}
            answer = await client.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.headers["x-request-id"] == "mine"

    app = create_app(llm, ServerSettings(api_keys=KEYS))
    logger = logging.getLogger("firstword.requests")
    with caplog.at_level(logging.INFO, logger.name):
        with_client(app, act)
    lines: list[dict[str, object]] = [r.__dict__["fields"] for r in caplog.records]
    assert len(lines) == 2
    for fields in lines:
        assert (fields["id"], fields["key"], fields["status"]) == ("mine", "ann", 200)
        assert (fields["model"], fields["finish"]) == ("fake:1m", "stop")
        num_prompt = len(llm.requests[0].prompt.token_ids)
        assert (fields["prompt_tokens"], fields["cached_tokens"]) == (num_prompt, 3)
        assert (fields["output_tokens"], fields["ttft"] is None) == (6, False)
        assert not {"Hi", "Hello", "secret-of-ann"} & set(map(str, fields.values()))


def test_arrival_is_when_the_request_came_not_when_it_was_read() -> None:
    llm = OperatedFake()

    async def act(client: httpx.AsyncClient) -> None:
        await client.post("/v1/chat/completions", json=CHAT)
        await client.post("/v1/messages", json=MESSAGE)

    with_client(create_app(llm), act)
    first, second = (request.options.arrival for request in llm.requests)
    assert first is not None and second is not None and first < second


def test_the_model_is_closed_with_the_app() -> None:
    llm = OperatedFake()
    app = create_app(llm)

    async def live() -> None:
        async with app.router.lifespan_context(app):
            assert llm.num_closed == 0

    asyncio.run(live())
    assert llm.num_closed == 1
