from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from firstword.engine.outputs import PromptProgress, TextDelta
from firstword.errors import EngineDiedError, QueueFullError
from firstword.kvcache.sources import CacheMiss, PromptSources
from firstword.sampling.params import SamplingParams
from firstword.server.errors import RequestTimeoutError, ShuttingDownError
from firstword.server.log import RequestRecord, current_request
from firstword.server.observed import ObservedLLM
from firstword.trace.metrics import ServingMetrics
from tests.server.fake_llm import Script
from tests.server.operated import OperatedFake

PROGRESS = (PromptProgress(2, PromptSources(1), 1, 0, 0.0),)


class Bench:
    """An observed fake, and one request's record."""

    def __init__(self, script: Script, timeout: float | None = None) -> None:
        self.fake, self.metrics = OperatedFake(script), ServingMetrics()
        self.llm = ObservedLLM(self.fake, self.metrics, timeout)
        self.record = RequestRecord("r1", "POST", "/v1/x")

    async def collect(self, n: int = 1, stop_after: int | None = None) -> list[TextDelta]:
        current_request.set(self.record)
        found: list[TextDelta] = []
        prompt = await self.llm.encode("Hi")
        deltas = self.llm.stream(prompt, SamplingParams(n=n), request_id="r1")
        async with aclosing(deltas):
            async for delta in deltas:
                found.append(delta)
                if len(found) == stop_after:
                    break
        return found


def test_pieces_pass_through_and_are_counted() -> None:
    bench = Bench(Script(text="abc", progress=PROGRESS, sources=PromptSources(1)))
    deltas = asyncio.run(bench.collect())
    assert "".join(delta.text for delta in deltas) == "abc"
    metrics = bench.metrics
    assert (metrics.generation_tokens, metrics.prompt_tokens_cached.total()) == (4, 1)
    assert (metrics.prompt_tokens, metrics.finished) == (2, {"stop": 1})
    assert metrics.time_to_first_token.count == 1
    assert metrics.inter_token_latency.count == 3
    assert not bench.llm.is_awaited


def test_the_record_says_what_the_log_will() -> None:
    miss = CacheMiss("different_text", 1, 1, (5,), (6,))
    bench = Bench(Script(text="abc", sources=PromptSources(0, 1), miss=miss))

    async def twice() -> None:
        await bench.collect()
        await bench.collect()

    asyncio.run(twice())
    record = bench.record
    assert (record.model, record.finish_reason) == ("fake:1m", "stop")
    assert (record.num_prompt_tokens, record.num_cached_tokens) == (4, 2)
    assert (record.num_disk_tokens, record.miss) == (2, "different_text@1")
    assert record.num_output_tokens == 8
    assert record.ttft is not None and record.ttft > 0


def test_the_engine_is_told_when_the_request_came() -> None:
    bench = Bench(Script())
    asyncio.run(bench.collect())
    assert bench.fake.requests[0].options.arrival == bench.record.arrival


def test_it_works_without_an_http_request() -> None:
    bench = Bench(Script(text="abc"))

    async def collect() -> str:
        deltas = bench.llm.stream(await bench.llm.encode("Hi"))
        return "".join([delta.text async for delta in deltas])

    assert asyncio.run(collect()) == "abc"


def test_a_reader_that_leaves_aborts_the_request() -> None:
    bench = Bench(Script(text="abc", progress=PROGRESS))
    asyncio.run(bench.collect(stop_after=2))
    assert (bench.metrics.finished, bench.fake.aborted) == ({"abort": 1}, ["r1"])
    assert (bench.record.num_prompt_tokens, bench.record.num_output_tokens) == (2, 1)


def test_a_cancelled_reader_is_cancelled_still() -> None:
    bench = Bench(Script(never_ends=True), timeout=60)

    async def leave() -> None:
        task = asyncio.create_task(bench.collect())
        while not bench.llm.is_awaited:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert (bench.metrics.finished, bench.fake.live) == ({"abort": 1}, set())


@pytest.mark.parametrize(("key_only", "reason"), [(False, "queue_full"), (True, "key_limit")])
def test_who_is_not_let_in_is_counted_apart(key_only: bool, reason: str) -> None:
    bench = Bench(Script(refusal=QueueFullError("8 requests wait", 3.0, key_only)))
    with pytest.raises(QueueFullError):
        asyncio.run(bench.collect())
    assert (bench.metrics.rejected, bench.metrics.finished) == ({reason: 1}, {})
    assert bench.record.finish_reason == "rejected"


def test_an_engine_that_dies_is_an_error() -> None:
    bench = Bench(Script(text="abcdef", failure=EngineDiedError("gone"), failure_after=2))
    with pytest.raises(EngineDiedError):
        asyncio.run(bench.collect())
    assert bench.metrics.finished == {"error": 1}
    assert (bench.record.finish_reason, bench.record.num_output_tokens) == ("error", 2)


def test_a_request_that_waits_too_long_ends_with_an_error() -> None:
    bench = Bench(Script(never_ends=True, progress=PROGRESS), timeout=0.02)
    with pytest.raises(RequestTimeoutError, match=r"longer than 0\.02 s"):
        asyncio.run(bench.collect())
    assert (bench.metrics.finished, bench.fake.aborted) == ({"error": 1}, ["r1"])


def test_time_is_over_even_for_a_reader_that_was_busy() -> None:
    bench = Bench(Script(text="abc"), timeout=0.02)

    async def read_slowly() -> None:
        deltas = bench.llm.stream(await bench.llm.encode("Hi"))
        async with aclosing(deltas):
            await anext(deltas)
            await asyncio.sleep(0.05)
            await anext(deltas)

    with pytest.raises(RequestTimeoutError):
        asyncio.run(read_slowly())


def test_time_includes_what_came_before_the_model() -> None:
    bench = Bench(Script(never_ends=True), timeout=60)
    bench.record.arrival -= 61
    with pytest.raises(RequestTimeoutError):
        asyncio.run(bench.collect())


def test_all_streams_end_when_told_and_later_ones_too() -> None:
    bench = Bench(Script(never_ends=True))

    async def end() -> None:
        tasks = [asyncio.create_task(bench.collect()) for _ in range(3)]
        while len(bench.fake.requests) < 3 or not bench.llm.is_awaited:
            await asyncio.sleep(0)
        bench.llm.end_all(ShuttingDownError("the server shut down"))
        tasks.append(asyncio.create_task(bench.collect()))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [ShuttingDownError] * 4

    asyncio.run(end())
    assert bench.fake.live == set()


def test_closing_and_figures_reach_the_model() -> None:
    bench = Bench(Script())
    assert bench.llm.stats().num_blocks == 100
    asyncio.run(bench.llm.close())
    assert bench.fake.num_closed == 1
    assert bench.llm.problem is None
