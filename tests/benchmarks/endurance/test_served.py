"""A whole server on a tiny model, and what happens to it from outside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.endurance.kills import is_idle
from benchmarks.endurance.processes import Footprint
from benchmarks.endurance.served import Served, Stream
from benchmarks.peers.session import EngineFailedError
from tests.cli.conftest import CHATML
from tests.weights.tiny_gguf import write_tiny_llama

SEATS = 2
FLAGS = ("--numerics", "exact", "--threads", "1", "--max-num-seqs", str(SEATS))
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tiny")
    return str(write_tiny_llama(folder / "model.gguf", chat_template=CHATML, context=512))


@pytest.fixture(scope="module")
def served(model: str) -> Iterator[Served]:
    with Served(model, *FLAGS) as it:
        yield it


def test_what_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(EngineFailedError, match=r"none\.gguf"):
        Served(str(tmp_path / "none.gguf"))


async def streams_under_way(served: Served, count: int, num_tokens: int) -> list[Stream]:
    """So many streams, of which those that have a seat are being answered."""
    streams = [Stream(served, served.chat(f"Hello {i}", num_tokens)) for i in range(count)]
    await asyncio.wait([asyncio.create_task(stream.until_text()) for stream in streams[:SEATS]])
    return streams


def test_p26_connections_cut_in_decode_and_in_the_queue_leave_nothing(served: Served) -> None:
    async def story() -> None:
        await served.ask(CHAT, served.chat("Hello", 4))
        before = [Footprint.of(pid) for pid in served.pids]
        for _ in range(3):
            streams = await streams_under_way(served, 3 * SEATS, 400)
            await served.seconds_until(lambda metrics: metrics["num_requests_waiting"] > 0)
            await asyncio.gather(*(stream.cut() for stream in streams))
            await served.seconds_until(is_idle)
        after = [Footprint.of(pid) for pid in served.pids]
        assert [f.threads for f in after] == [f.threads for f in before]
        assert sum(f.fds for f in after) <= sum(f.fds for f in before) + SEATS

    asyncio.run(story())


def test_p26_cuts_at_any_moment_of_a_request_leave_nothing(served: Served) -> None:
    async def story() -> None:
        answered = served.log().count("finish=length")
        for index in range(40):
            asking = asyncio.create_task(served.ask(CHAT, served.chat("x" * 9 * index, 400)))
            await asyncio.sleep(0.0005 * index)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await served.seconds_until(is_idle)
        assert served.log().count("finish=abort") > 0
        assert served.log().count("finish=length") == answered, "nobody's request was answered"

    asyncio.run(story())


def test_p27_requests_of_a_killed_engine_are_told_and_the_next_is_served(served: Served) -> None:
    async def story() -> None:
        body = served.chat("Hello", 8, logprobs=True, seed=1)
        before = (await served.ask(CHAT, body)).json()["choices"]
        streams = await streams_under_way(served, SEATS, 400)
        whole = asyncio.create_task(served.ask(CHAT, served.chat("Hello", 400)))
        await served.seconds_until(lambda metrics: metrics["num_requests_waiting"] == 1)
        served.kill_engine()
        await asyncio.gather(whole, *(stream.end() for stream in streams))
        assert whole.result().status == 503
        for stream in streams:
            assert stream.events[-1] == "[DONE]"
            assert "SIGKILL" in json.loads(stream.events[-2])["error"]["message"]
        again = await served.ask(CHAT, body)
        assert (again.status, again.json()["choices"]) == (200, before)
        assert (await served.metrics())["engine_restarts_total"] == 1

    asyncio.run(story())


def test_p26_sigterm_lets_what_runs_end_and_sends_others_away(model: str) -> None:
    async def story(served: Served) -> None:
        streams = await streams_under_way(served, 2 * SEATS, 100)
        served.terminate()
        while (await served.ask("/ready")).status == 200:
            await asyncio.sleep(0.01)
        refused = await served.ask(CHAT, served.chat("Hello", 4))
        assert refused.status == 503 and b'"shutting_down"' in refused.body
        await asyncio.gather(*(stream.end() for stream in streams))
        for stream in streams:
            assert stream.events[-1] == "[DONE]" and stream.error is None
            assert any('"finish_reason":"length"' in event for event in stream.events)
        assert await served.exit_status() == 0

    with Served(model, *FLAGS) as served:
        asyncio.run(story(served))
