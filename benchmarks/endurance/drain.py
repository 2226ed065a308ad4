"""SIGTERM under load: what runs ends properly, what comes is sent away, the exit is in time."""

from __future__ import annotations

import asyncio
import json
import time

from benchmarks.endurance.report import Report
from benchmarks.endurance.served import Reply, Served, Stream, words
from firstword.bench.serving.http import RequestFailedError
from firstword.server.run import FAREWELL_SECONDS

_CLIENTS = 8
_TOKENS = 150
_GRACE = 2.0
"""Seconds between the end of the last request, or of its time, and that of the process."""


async def drain(report: Report, model: str) -> None:
    """Run the check.

    Args:
        report: receives the findings.
        model: a name or a path.
    """
    await _with_time(report, model)
    await _without(report, model)


async def _under_load(served: Served, num_tokens: int) -> list[Stream]:
    streams = [Stream(served, served.chat(words(20, i), num_tokens)) for i in range(_CLIENTS)]
    for stream in streams:
        await stream.until_text()
    return streams


async def _with_time(report: Report, model: str) -> None:
    with Served(model, "--drain-seconds", "60") as served:
        streams = await _under_load(served, _TOKENS)
        whole = asyncio.create_task(
            served.ask("/v1/chat/completions", served.chat(words(20, 99), _TOKENS))
        )
        await asyncio.sleep(0.1)
        served.terminate()
        await asyncio.sleep(0.2)
        refused = [await _refused(served) for _ in range(5)]
        await asyncio.gather(whole, *(stream.end() for stream in streams))
        ended = time.perf_counter()
        status = await served.exit_status()
        seconds = time.perf_counter() - ended
        complete = sum(_is_complete(stream) for stream in streams) + _is_whole(whole.result())
        report.check(
            complete == _CLIENTS + 1,
            f"drain: {complete} of {_CLIENTS + 1} running requests came to their proper end",
        )
        report.check(all(refused), f"drain: {sum(refused)} of 5 new ones: 503 with Retry-After")
        report.check(
            status == 0 and seconds <= _GRACE,
            f"drain: exit status {status}, {seconds:.1f} s after the last answer",
        )
        report.check("Traceback" not in served.log(), "drain: no exception in the log")


async def _refused(served: Served) -> bool:
    """Whether a new request is told to come again."""
    body = json.dumps(served.chat("Hello", 4)).encode()
    reader, writer = await asyncio.open_connection(served.address.host, served.address.port)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {served.address.host}:{served.address.port}"
        f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    answer = (await reader.read()).lower()
    writer.close()
    return answer.startswith(b"http/1.1 503") and b"\r\nretry-after: " in answer


def _is_complete(stream: Stream) -> bool:
    ends = [event for event in stream.events if '"finish_reason":"length"' in event]
    return stream.error is None and len(ends) == 1 and stream.events[-1] == "[DONE]"


def _is_whole(reply: Reply) -> bool:
    usage = reply.json().get("usage")
    return isinstance(usage, dict) and usage.get("completion_tokens") == _TOKENS


async def _without(report: Report, model: str) -> None:
    limit = 1.0
    with Served(model, "--drain-seconds", f"{limit:g}") as served:
        streams = await _under_load(served, 1900)
        served.terminate()
        start = time.perf_counter()
        await asyncio.gather(*(stream.end() for stream in streams))
        status = await served.exit_status()
        seconds = time.perf_counter() - start
        told = sum(_ends_with_error(stream) for stream in streams)
        report.check(told == _CLIENTS, f"drain: time over, {told} of {_CLIENTS} told so properly")
        report.check(
            status == 0 and seconds <= limit + FAREWELL_SECONDS + _GRACE,
            f"drain: exit status {status}, {seconds:.1f} s after SIGTERM with {limit:g} s to drain",
        )


def _ends_with_error(stream: Stream) -> bool:
    """Whether the last events are an error in the API's shape and the end."""
    if stream.error is not None or stream.events[-1] != "[DONE]":
        return False
    try:
        error = json.loads(stream.events[-2])["error"]
    except (LookupError, ValueError) as problem:
        raise RequestFailedError("malformed answer", str(stream.events[-2:])) from problem
    return {"message", "type", "code"} <= set(error)
