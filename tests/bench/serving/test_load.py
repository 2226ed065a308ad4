from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise, repeat

from firstword.bench.serving.client import Client, Target
from firstword.bench.serving.exchange import Exchange
from firstword.bench.serving.load import LoadGenerator
from firstword.bench.serving.workloads import (
    ClosedLoop,
    Conversation,
    OpenLoop,
    Phase,
    Traffic,
)
from tests.bench.serving.scripted_server import (
    Request,
    Script,
    ScriptedServer,
    chat,
    json_reply,
)

ASKED = Conversation(("hello there",), 2)


def run(server: ScriptedServer, *traffic: Traffic) -> list[Exchange]:
    """The exchanges of a phase, in the order they ended."""
    exchanges: list[Exchange] = []
    client = Client(Target(server.url, "tiny", timeout=10))
    asyncio.run(LoadGenerator(client, exchanges.append).run(Phase(traffic)))
    return exchanges


def slow(seconds: float) -> Script:
    """A server that thinks before it answers."""

    def script(request: Request) -> Iterator[bytes | float]:
        yield seconds
        yield from chat(request)

    return script


def test_a_closed_loop_has_so_many_requests_at_once() -> None:
    with ScriptedServer(slow(0.05)) as server:
        exchanges = run(server, Traffic("g", [ASKED] * 12, ClosedLoop(4)))
        assert server.most_at_once >= 4
    assert len(exchanges) == 12 and all(exchange.is_complete for exchange in exchanges)
    spans = [(one.started, one.ended) for one in exchanges if one.ended is not None]
    at_once = [sum(a <= now < b for a, b in spans) for now, _ in spans]
    assert max(at_once) == 4


def test_an_open_loop_does_not_wait_for_answers() -> None:
    with ScriptedServer(slow(0.3)) as server:
        exchanges = run(server, Traffic("g", [ASKED] * 10, OpenLoop(rate=200, seed=1)))
        assert server.most_at_once > 4
    assert len(exchanges) == 10


def test_time_counts_from_when_a_request_was_due() -> None:
    loop = OpenLoop(rate=200, seed=1)
    with ScriptedServer(chat) as server:
        exchanges = run(server, Traffic("g", [ASKED] * 3, loop))
    starts = sorted(exchange.started for exchange in exchanges)
    due = [time for time, _ in zip(loop.arrivals(), starts, strict=False)]
    gaps = [round(later - earlier, 6) for earlier, later in pairwise(starts)]
    wanted = [round(later - earlier, 6) for earlier, later in pairwise(due)]
    assert gaps == wanted


def test_a_conversation_takes_the_models_answers_along() -> None:
    talk = Conversation(("first words", "second"), 2)
    with ScriptedServer(chat) as server:
        exchanges = run(server, Traffic("g", [talk], ClosedLoop(1)))
        last = server.requests[-1].body["messages"]
    assert [exchange.turn for exchange in exchanges] == [0, 1]
    assert [message["role"] for message in last] == ["user", "assistant", "user"]
    assert [message["content"] for message in last] == ["first words", "w0 w1 ", "second"]


def test_a_failure_ends_its_conversation_and_no_other() -> None:
    def script(request: Request) -> Iterator[bytes]:
        if request.body["messages"][0]["content"] == "bad":
            yield json_reply({"error": {"message": "no"}}, "503 Full")
        else:
            yield from chat(request)

    talks = [Conversation(("bad", "more"), 2), Conversation(("good", "more"), 2)]
    with ScriptedServer(script) as server:
        exchanges = run(server, Traffic("g", talks, ClosedLoop(1)))
    assert [exchange.error for exchange in exchanges] == ["HTTP 503", None, None]


def test_background_lasts_as_long_as_the_rest() -> None:
    with ScriptedServer(slow(0.02)) as server:
        exchanges = run(
            server,
            Traffic("flood", repeat(ASKED), ClosedLoop(2), background=True),
            Traffic("open flood", repeat(ASKED), OpenLoop(100, 1), background=True),
            Traffic("counted", [ASKED] * 3, ClosedLoop(1), delay=0.1),
        )
    groups = [exchange.group for exchange in exchanges]
    assert groups.count("counted") == 3
    assert groups[0] != "counted" and groups.count("flood") > 3 and "open flood" in groups
    assert all(exchange.is_complete for exchange in exchanges)


def test_keys_and_leaving_are_passed_on() -> None:
    gone = Conversation(("hello",), 2, leave_after=0.05)
    with ScriptedServer(slow(5)) as server:
        (exchange,) = run(server, Traffic("g", [gone], ClosedLoop(1)))
    assert exchange.left and exchange.key == 0
