"""Clients that vanish while they are queued, read or answered: nothing of them stays."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Mapping

from benchmarks.endurance.processes import Footprint
from benchmarks.endurance.report import Report, milliseconds
from benchmarks.endurance.served import Served, Stream, words

SEATS = 4
_EACH = 40
_KILLS = 1000
_WARM_UP = 400
_AT_ONCE = 16
_LIMIT = 0.1
_GROWTH_BYTES = 8e6
"""Resident memory moves by some megabytes as allocators please; what leaks keeps on growing."""

_CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as server:
    server.sendall(sys.stdin.buffer.read())
    while server.recv(65536): pass
"""


def is_idle(metrics: Mapping[str, float]) -> bool:
    """Whether no request holds anything."""
    names = ("kv_cache_usage_perc", "num_requests_running", "num_requests_waiting")
    return not any(metrics[name] for name in names)


async def kills(report: Report, model: str) -> None:
    """Run the check.

    Args:
        report: receives the findings.
        model: a name or a path.
    """
    flags = ("--context", "2048", "--max-num-seqs", str(SEATS), "--memory", "900M")
    with Served(model, *flags) as served:
        before = await served.ask("/v1/chat/completions", _probe(served))
        for name, times in {
            "in decode": await _in_decode(served),
            "in prefill": await _in_prefill(served),
            "queued": await _queued(served),
        }.items():
            text = f"kills: {name}, free after {milliseconds(times)} (limit 100 ms)"
            report.check(max(times) <= _LIMIT, text)
        await _many(report, served)
        after = await served.ask("/v1/chat/completions", _probe(served))
        same = before.json()["choices"] == after.json()["choices"]
        report.check(same, "kills: a request gives the same tokens before and after")
        report.check("Traceback" not in served.log(), "kills: no exception in the log")


def _probe(served: Served) -> dict[str, object]:
    return served.chat("What is gravity?", 24, seed=7, logprobs=True)


async def _in_decode(served: Served) -> list[float]:
    times = []
    for index in range(_EACH):
        stream = Stream(served, served.chat(words(20, index), 1500))
        await stream.until_text()
        await asyncio.sleep(0.002 * index)
        await stream.cut()
        times.append(await served.seconds_until(is_idle))
    return times


async def _in_prefill(served: Served) -> list[float]:
    times = []
    for index in range(_EACH):
        body = served.chat(words(1500, 1000 + index), 100, return_progress=True)
        stream = Stream(served, body)
        await served.seconds_until(lambda metrics: metrics["num_requests_running"] == 1)
        await asyncio.sleep(0.01 * index)
        assert not stream.has_text, "it was read by then"
        await stream.cut()
        times.append(await served.seconds_until(is_idle))
    return times


async def _queued(served: Served) -> list[float]:
    times = []
    seated = [Stream(served, served.chat(words(20, 2000 + i), 1800)) for i in range(SEATS)]
    for stream in seated:
        await stream.until_text()
    for index in range(_EACH):
        stream = Stream(served, served.chat(words(300, 3000 + index), 100))
        await served.seconds_until(lambda metrics: metrics["num_requests_waiting"] == 1)
        await stream.cut()
        times.append(
            await served.seconds_until(lambda metrics: metrics["num_requests_waiting"] == 0)
        )
    await asyncio.gather(*(stream.cut() for stream in seated))
    await served.seconds_until(is_idle)
    return times


async def _many(report: Report, served: Served) -> None:
    chance = random.Random(5)
    await _wave(served, chance, _WARM_UP)
    await served.seconds_until(is_idle)
    before = await _settled(served)
    await _wave(served, chance, _KILLS)
    seconds = await served.seconds_until(is_idle)
    report.check(seconds <= _LIMIT, f"kills: idle {seconds * 1e3:.0f} ms after the last of them")
    after = await _settled(served)
    for name, old, new in zip(("HTTP", "engine"), before, after, strict=True):
        is_same = (old.threads, old.fds) == (new.threads, new.fds)
        is_flat = new.rss - old.rss <= _GROWTH_BYTES
        text = f"kills: {name} process before and after {_KILLS} more: {old}; {new}"
        report.check(is_same and is_flat, text)


async def _settled(served: Served) -> list[Footprint]:
    await asyncio.sleep(2)
    return [Footprint.of(pid) for pid in served.pids]


async def _wave(served: Served, chance: random.Random, count: int) -> None:
    """Kill so many clients, several at a time, each at a moment of its own."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def one(seed: int, patience: float) -> None:
        async with at_once:
            body = served.chat(words(seed % 1500 + 5, seed), 200, stream=seed % 3 > 0)
            if seed % 40 == 0:
                await _killed_process(served, body, patience)
            else:
                await _cut(served, body, patience)

    drawn = [(chance.randrange(10**6), chance.random() * 0.3) for _ in range(count)]
    await asyncio.gather(*(one(*each) for each in drawn))


async def _cut(served: Served, body: dict[str, object], patience: float) -> None:
    asking = asyncio.create_task(served.ask("/v1/chat/completions", body))
    await asyncio.sleep(patience)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def _killed_process(served: Served, body: dict[str, object], patience: float) -> None:
    address, content = served.address, json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-S", "-E", "-c", _CLIENT, address.host, str(address.port)],
        stdin=subprocess.PIPE,
    )
    assert client.stdin is not None
    with client.stdin:
        client.stdin.write(head.encode() + content)
    await asyncio.sleep(0.1 + patience)
    client.kill()
    client.wait()
