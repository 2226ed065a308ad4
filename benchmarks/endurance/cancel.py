"""A long prompt of a large model is given up: the step under way ends for it."""

from __future__ import annotations

import asyncio
import time

from benchmarks.endurance.kills import is_idle
from benchmarks.endurance.processes import cpu_seconds
from benchmarks.endurance.report import Report, milliseconds
from benchmarks.endurance.served import Served, Stream, words

_LIMIT = 0.1
_PATH = "/v1/completions"  # large files for measurements may have no chat template
_WORDS = 2500
_MOMENTS = (0.5, 1.0, 1.7, 2.3, 3.1, 4.0)
"""Seconds after its start at which a prompt is given up."""


async def cancel(report: Report, model: str) -> None:
    """Run the check.

    Args:
        report: receives the findings.
        model: a name or a path.
    """
    with Served(model, "--context", "4096", "--max-num-seqs", "4") as served:
        times, busy = [], []
        for index, moment in enumerate(_MOMENTS):
            stream = await _reading(served, index, moment)
            await stream.cut()
            times.append(await served.seconds_until(is_idle))
            busy.append(await _busy_seconds(served))
        report.check(
            max(times) <= _LIMIT, f"cancel: alone, free after {milliseconds(times)} (limit 100 ms)"
        )
        report.check(
            max(busy) <= _LIMIT,
            f"cancel: the engine then computes {max(busy) * 1e3:.0f} ms more at most",
        )
        await _beside_a_neighbour(report, served)


async def _reading(served: Served, index: int, seconds: float) -> Stream:
    """A prompt that has been read for some time."""
    before = (await served.metrics())["num_requests_running"]
    stream = Stream(served, served.completion(words(_WORDS, index), 4), _PATH)
    await served.seconds_until(lambda metrics: metrics["num_requests_running"] > before)
    await asyncio.sleep(seconds)
    return stream


async def _busy_seconds(served: Served) -> float:
    """Processor time that the engine takes in the next half second."""
    before = cpu_seconds(served.engine_pid)
    await asyncio.sleep(0.5)
    return cpu_seconds(served.engine_pid) - before


async def _beside_a_neighbour(report: Report, served: Served) -> None:
    neighbour = Stream(served, served.completion("Tell me a story.", 400), _PATH)
    await neighbour.until_text()
    times, gaps = [], []
    for index, moment in enumerate(_MOMENTS):
        stream = await _reading(served, 100 + index, moment)
        await stream.cut()
        cut = time.perf_counter()
        times.append(
            await served.seconds_until(lambda metrics: metrics["num_requests_running"] == 1)
        )
        seen = len(neighbour.events)
        while len(neighbour.events) == seen:
            await asyncio.sleep(0.005)
        gaps.append(neighbour.times[seen] - cut)
    await neighbour.cut()
    await served.seconds_until(is_idle)
    report.check(
        max(times) <= _LIMIT,
        f"cancel: beside a chat, free after {milliseconds(times)} (limit 100 ms)",
    )
    report.say(f"cancel: the chat's next token came {milliseconds(gaps)} after that")
