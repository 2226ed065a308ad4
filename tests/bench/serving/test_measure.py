from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from firstword.bench.serving.client import Client, Target
from firstword.bench.serving.measure import Measurement, tokenize_route
from firstword.bench.serving.workloads import WORKLOADS, Sizes
from firstword.errors import ConfigError
from tests.bench.serving.scripted_server import (
    Request,
    ScriptedServer,
    chat,
    json_reply,
    usual,
)

SIZES = Sizes(requests=4, input_tokens=30, output_tokens=3, concurrency=2, long_tokens=60)


def measurement(server: ScriptedServer) -> Measurement:
    return Measurement(Client(Target(server.url, "tiny", timeout=10)))


@pytest.mark.parametrize("workload", [*WORKLOADS])
def test_every_workload_runs_with_prompts_of_the_right_length(workload: str) -> None:
    sizes = replace(SIZES, prefix_tokens=50, turns=2, leave_seconds=0.01)
    with ScriptedServer(usual) as server:
        exchanges = asyncio.run(measurement(server).run(workload, sizes))
    stayed = [exchange for exchange in exchanges if not exchange.left]
    assert all(exchange.is_complete for exchange in stayed)
    firsts = {e.usage.prompt for e in stayed if e.usage is not None and e.turn == 0}
    assert firsts <= ({80} if workload == "shared-prefix" else {30, 60})


def test_warm_up_is_left_out_and_has_prompts_of_its_own() -> None:
    with ScriptedServer(usual) as server:
        sizes = replace(SIZES, seed=1)
        exchanges = asyncio.run(measurement(server).run("distinct", sizes, warm_up=3))
        asked = [r.body["messages"][0]["content"] for r in server.requests if "chat" in r.path]
    assert len(exchanges) == 4
    assert len(asked) == 1 + 3 + 4 and len(set(asked)) == len(asked)


def test_a_server_is_learned_once() -> None:
    with ScriptedServer(usual) as server:
        measured = measurement(server)
        heard: list[object] = []
        measured.listener = heard.append
        asyncio.run(measured.run("distinct", SIZES))
        before = len(server.requests)
        second = asyncio.run(measured.run("distinct", replace(SIZES, seed=1)))
        assert len(server.requests) == before + 4
    assert len(second) == 4 and measured.exchanges[4:] == second and len(heard) == 8


def test_llama_cpps_way_to_count_is_known() -> None:
    def script(request: Request) -> Iterator[bytes]:
        if request.path == "/tokenize":
            yield json_reply({"tokens": request.body.get("content", "").split()})
        else:
            yield from chat(request)

    with ScriptedServer(script) as server:
        (exchange, *_) = asyncio.run(measurement(server).run("distinct", SIZES))
    assert exchange.usage is not None and exchange.usage.prompt == 30


def test_a_server_that_does_not_count_is_asked_for_usage() -> None:
    def script(request: Request) -> Iterator[bytes]:
        if request.path == "/tokenize":
            yield json_reply({"error": "what?"}, "404 Not Found")
        else:
            yield from chat(request)

    with ScriptedServer(script) as server:
        client = Client(Target(server.url, "tiny", timeout=10))
        assert asyncio.run(tokenize_route(client)) is None
        (exchange, *_) = asyncio.run(measurement(server).run("distinct", SIZES))
    assert exchange.usage is not None and exchange.usage.prompt == 30


def test_a_server_that_answers_no_chat_is_an_error() -> None:
    refusal = json_reply({"error": {"message": "no such model"}}, "404 Not Found")
    with (
        ScriptedServer(lambda request: (refusal,)) as server,
        pytest.raises(ConfigError, match="no such model"),
    ):
        asyncio.run(measurement(server).run("distinct", SIZES))


def test_unknown_workloads_and_a_missing_key_are_refused() -> None:
    one_key = Measurement(Client(Target("http://127.0.0.1:1", "tiny", ("only",))))
    with pytest.raises(ConfigError, match="shared-prefix"):
        asyncio.run(one_key.run("storm", SIZES))
    with pytest.raises(ConfigError, match="two"):
        asyncio.run(one_key.run("two-keys", SIZES))
