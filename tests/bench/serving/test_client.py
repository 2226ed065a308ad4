from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator

import pytest

from firstword.bench.serving.client import Client, Target, resolve_model
from firstword.bench.serving.exchange import Exchange, Usage
from firstword.errors import ConfigError
from tests.bench.serving.scripted_server import (
    STREAM_HEAD,
    Request,
    Script,
    ScriptedServer,
    chat,
    chunk,
    event,
    finish_event,
    json_reply,
    text_event,
    usage_event,
    usual,
)

DONE = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
QUESTION = [{"role": "user", "content": "one two three"}]


def ask(script: Script, target: Target | None = None, leave_after: float | None = None) -> Exchange:
    """What an exchange with a scripted server comes to."""
    exchange = Exchange("g")

    async def run(client: Client) -> None:
        exchange.started = client.clock()
        await client.ask(exchange, QUESTION, 5, leave_after)

    with ScriptedServer(script) as server:
        model = target or Target("", "tiny", timeout=10)
        asyncio.run(
            run(Client(Target(server.url, model.model, model.api_keys, True, model.timeout)))
        )
    return exchange


def ask_raw(*answer: bytes | float) -> Exchange:
    """The same, with an answer that does not depend on the request."""
    return ask(lambda request: answer)


def test_tokens_are_counted_by_usage_not_by_events() -> None:
    exchange = ask_raw(
        STREAM_HEAD,
        chunk(text_event("two tokens")),
        chunk(text_event("and three more")),
        chunk(finish_event()),
        chunk(usage_event(30, 5, cached=16)),
        DONE,
    )
    assert exchange.usage == Usage(prompt=30, cached=16, completion=5)
    assert len(exchange.text_times) == 2
    assert exchange.text == "two tokensand three more"
    assert exchange.finish_reason == "length" and exchange.is_complete


def test_comments_progress_and_empty_deltas_are_no_first_token() -> None:
    role = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    progress = event({"choices": [], "prompt_progress": {"done": 5, "total": 30}, "usage": None})
    exchange = ask_raw(
        STREAM_HEAD,
        chunk(b": keep-alive\n\n" + role),
        0.05,
        chunk(progress),
        chunk(text_event("word") + finish_event() + usage_event(3, 1)),
        DONE,
    )
    assert len(exchange.text_times) == 1
    assert exchange.ttft is not None and exchange.ttft >= 0.05


@pytest.mark.parametrize("field", ["reasoning_content", "tool_calls"])
def test_thoughts_and_calls_are_tokens_too(field: str) -> None:
    delta = event({"choices": [{"index": 0, "delta": {field: "something"}}]})
    end = finish_event() + usage_event(3, 1)
    exchange = ask_raw(STREAM_HEAD, chunk(delta + end), DONE)
    assert len(exchange.text_times) == 1 and exchange.text == ""


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_pieces_cut_within_characters_and_lines_are_put_together(size: int) -> None:
    stream = text_event("Grüße ") + text_event("😀") + finish_event() + usage_event(3, 2)
    pieces = (chunk(stream[i : i + size]) for i in range(0, len(stream), size))
    exchange = ask_raw(STREAM_HEAD, *pieces, DONE)
    assert exchange.text == "Grüße 😀" and exchange.is_complete


def test_requests_ask_for_a_whole_answer_and_its_usage() -> None:
    seen: list[Request] = []

    def script(request: Request) -> Iterator[bytes]:
        seen.append(request)
        return chat(request)

    exchange = ask(script, Target("", "tiny", ("first", "second"), timeout=10))
    assert exchange.usage == Usage(10, 0, 5)
    (request,) = seen
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer first"
    assert request.body["ignore_eos"] and request.body["max_tokens"] == 5
    assert request.body["stream_options"] == {"include_usage": True}


def test_fields_can_be_left_out_and_added() -> None:
    target = Target("", "tiny", ignore_eos=False, extra={"seed": 4})
    body = json.loads(target.body(QUESTION, 5))
    assert "ignore_eos" not in body and body["seed"] == 4


@pytest.mark.parametrize(
    ("answer", "kind", "detail"),
    [
        ([json_reply({"error": {"message": "queue full"}}, "429 Busy")], "HTTP 429", "queue full"),
        ([json_reply({"error": "no"}, "404 X")], "HTTP 404", "no"),
        ([b"HTTP/1.1 500 X\r\n\r\nTraceback"], "HTTP 500", "Traceback"),
        ([STREAM_HEAD, chunk(text_event("a"))], "closed early", "body"),
        ([STREAM_HEAD, chunk(text_event("a")), b"0\r\n\r\n"], "closed early", "finish_reason"),
        ([STREAM_HEAD, chunk(text_event("a")), DONE], "closed early", "finish_reason"),
        ([STREAM_HEAD, chunk(finish_event()), DONE], "no usage", "count"),
        ([STREAM_HEAD, chunk(b"data: {oops\n\n")], "malformed answer", "oops"),
        ([STREAM_HEAD, chunk(b"data: 7\n\n")], "malformed answer", "7"),
        ([STREAM_HEAD, chunk(event({"choices": [1]}))], "malformed answer", "choice"),
        ([STREAM_HEAD, chunk(event({"usage": {"a": 1}}))], "malformed answer", "usage"),
        (
            [STREAM_HEAD, chunk(event({"error": {"message": "died"}}))],
            "error in the stream",
            "died",
        ),
        ([b"nonsense\r\n\r\n"], "malformed answer", "nonsense"),
    ],
)
def test_failures_have_a_kind_and_a_detail(answer: Iterable[bytes], kind: str, detail: str) -> None:
    exchange = ask_raw(*answer)
    assert exchange.error == kind and detail in exchange.detail
    assert not exchange.is_complete and not exchange.left


def test_a_slow_server_is_given_up() -> None:
    exchange = ask(lambda request: (STREAM_HEAD, 30.0), Target("", "tiny", timeout=0.1))
    assert exchange.error == "timeout" and "0.1 s" in exchange.detail


def test_who_leaves_has_no_failure() -> None:
    exchange = ask(lambda request: (STREAM_HEAD, chunk(text_event("a")), 30.0), leave_after=0.1)
    assert exchange.left and exchange.error is None and not exchange.is_complete


def test_the_server_names_its_model() -> None:
    with ScriptedServer(usual) as server:
        assert asyncio.run(resolve_model(Target(server.url, ""))) == "tiny"
        assert asyncio.run(resolve_model(Target(server.url, "given"))) == "given"


@pytest.mark.parametrize("answer", [b"", json_reply({"data": []}), json_reply([1])])
def test_a_server_without_models_is_an_error_with_a_remedy(answer: bytes) -> None:
    with (
        ScriptedServer(lambda request: (answer,)) as server,
        pytest.raises(ConfigError, match=r"--base-url|--model"),
    ):
        asyncio.run(resolve_model(Target(server.url, "")))
