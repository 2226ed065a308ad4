"""SIGKILL of the engine's process: its requests are told, the next ones find another engine."""

from __future__ import annotations

import asyncio
import json
import time

from benchmarks.endurance.report import Report
from benchmarks.endurance.served import POLL_SECONDS, Fields, Reply, Served, Stream, words

_LIMIT = 5.0
_ROUNDS = 3
_ANTHROPIC = {"x-api-key": "none", "anthropic-version": "2023-06-01"}


async def restart(report: Report, model: str) -> None:
    """Run the check.

    Args:
        report: receives the findings.
        model: a name or a path.
    """
    with Served(model, "--context", "2048", "--max-num-seqs", "4") as served:
        probe = served.chat("What is gravity?", 8, seed=1, logprobs=True)
        before = await served.ask("/v1/chat/completions", probe)
        times = []
        for index in range(_ROUNDS):
            told = asyncio.create_task(_told(served, index))
            await served.seconds_until(lambda m: m["num_requests_running"] == 4)
            await asyncio.sleep(0.3)
            served.kill_engine()
            start = time.perf_counter()
            watching = asyncio.create_task(_not_ready(served))
            reply = await _served_again(served, probe)
            times.append(time.perf_counter() - start)
            problems = await told
            report.check(not problems, f"restart: requests told of it {problems or 'properly'}")
            same = reply.status == 200 and reply.json()["choices"] == before.json()["choices"]
            report.check(same, f"restart: the next request: status {reply.status}, same tokens")
            reason = await watching
            report.check(bool(reason), f"restart: /ready says meanwhile: {reason or 'nothing'}")
        text = ", ".join(f"{seconds:.1f}" for seconds in times)
        report.check(max(times) <= _LIMIT, f"restart: the next is served after {text} s (limit 5)")
        count = (await served.metrics())["engine_restarts_total"]
        report.check(count == _ROUNDS, f"restart: {count:.0f} restarts counted")


async def _served_again(served: Served, probe: Fields) -> Reply:
    """The first answer that is none of the engine's death."""
    while True:
        reply = await served.ask("/v1/chat/completions", probe)
        if reply.status != 503:
            return reply
        # It came before the death was noticed, and shared the fate of those in flight.
        await asyncio.sleep(POLL_SECONDS)


async def _not_ready(served: Served) -> str:
    """Why /ready refuses; empty where it does not."""
    for _ in range(100):
        reply = await served.ask("/ready")
        if reply.status == 503:
            return str(reply.json().get("reason"))
        await asyncio.sleep(0.005)
    return ""


async def _told(served: Served, seed: int) -> list[str]:
    """What is wrong with how requests in flight learn that their engine has died."""
    chat = served.chat(words(30, seed), 1000)
    stream = Stream(served, chat)
    message = {k: v for k, v in chat.items() if k != "ignore_eos"}
    anthropic = Stream(served, message, "/v1/messages")
    replies = await asyncio.gather(
        served.ask("/v1/chat/completions", chat),
        served.ask("/v1/messages", message, _ANTHROPIC),
        served.ask("/v1/chat/completions", chat),  # queued: there are four seats
        served.ask("/v1/completions", {"model": served.model, "prompt": "Hello", "max_tokens": 9}),
    )
    await asyncio.gather(stream.end(), anthropic.end())
    problems = []
    if stream.events[-1:] != ["[DONE]"] or "error" not in json.loads(stream.events[-2]):
        problems.append(f"stream: {stream.error} {stream.events[-2:]}")
    if not anthropic.events or json.loads(anthropic.events[-1]).get("type") != "error":
        problems.append(f"Anthropic stream: {anthropic.error} {anthropic.events[-1:]}")
    for name, reply in zip(("chat", "message", "queued chat"), replies, strict=False):
        if reply.status != 503 or "error" not in reply.json():
            problems.append(f"{name}: {reply.status} {reply.body[:200]!r}")
    return problems
