from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from pathlib import Path

import pytest

from firstword.async_llm import AsyncLLM
from firstword.config import EngineConfig
from firstword.engine.outputs import TextDelta
from firstword.engine_process import ProcessClient
from firstword.errors import (
    ConfigError,
    EngineDiedError,
    ModelNotFoundError,
    PromptTooLongError,
)
from firstword.llm import LLM
from firstword.sampling.params import SamplingParams
from tests.cli.conftest import CHATML
from tests.weights.tiny_gguf import write_tiny_llama

CONFIG = EngineConfig(max_num_batched_tokens=8, enable_panel_cache=False)
PARAMS = SamplingParams(seed=3, max_tokens=24, ignore_eos=True)
PROMPTS = ["Hello", "What is gravity?", "A long prompt that takes several steps to read."]

Story = Callable[[AsyncLLM], Coroutine[object, object, None]]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    return write_tiny_llama(folder / "model.gguf", chat_template=CHATML)


@pytest.fixture(scope="module")
def expected(path: Path) -> list[str]:
    llm = LLM(path, config=CONFIG, numerics="exact")
    return [output.text for output in llm.generate(PROMPTS, PARAMS)]


@pytest.fixture(params=["thread", "process"])
def play(path: Path, request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs a story with a model on a thread, and with one in a process of its own."""

    def run(story: Story) -> None:
        async def with_model() -> None:
            own_process = request.param == "process"
            async with AsyncLLM(
                path, config=CONFIG, numerics="exact", own_process=own_process
            ) as llm:
                await asyncio.wait_for(story(llm), 60)

        asyncio.run(with_model())

    return run


async def collect(stream: AsyncIterator[TextDelta]) -> list[TextDelta]:
    return [delta async for delta in stream]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_many_at_once_answer_as_each_alone(
    play: Callable[[Story], None], expected: list[str]
) -> None:
    async def story(llm: AsyncLLM) -> None:
        outputs = await asyncio.gather(*(llm.generate(p, PARAMS) for p in PROMPTS))
        assert [output.text for output in outputs] == expected
        assert [output.seed for output in outputs] == [3, 3, 3]

    play(story)


def test_pieces_join_to_the_answer_and_progress_comes_first(
    play: Callable[[Story], None], expected: list[str]
) -> None:
    async def story(llm: AsyncLLM) -> None:
        deltas = await collect(llm.stream(PROMPTS[2], PARAMS))
        assert "".join(delta.text for delta in deltas) == expected[2]
        progress = [d.progress for d in deltas if d.progress is not None]
        assert deltas[: len(progress)] == [d for d in deltas if d.progress is not None]
        done = [p.num_computed_tokens for p in progress]
        assert done[0] == 0 and done == sorted(done) and len(done) > 2
        output = deltas[-1].output
        assert output is not None
        assert {p.num_prompt_tokens for p in progress} == {output.num_prompt_tokens}
        assert [d.output is not None for d in deltas] == [False] * (len(deltas) - 1) + [True]

    play(story)


def test_a_stop_string_ends_the_request_with_its_metrics(
    play: Callable[[Story], None], expected: list[str]
) -> None:
    async def story(llm: AsyncLLM) -> None:
        stop = expected[0][8:11]
        params = SamplingParams(seed=3, max_tokens=24, ignore_eos=True, stop=(stop,))
        deltas = await collect(llm.stream(PROMPTS[0], params))
        output = deltas[-1].output
        assert output is not None
        assert output.text == expected[0][: expected[0].find(stop)]
        assert "".join(d.text for d in deltas) == output.text
        assert output.outputs[0].stop_reason == stop
        assert output.metrics.ttft is not None
        await until(lambda: llm.stats().num_used_blocks == 0)

    play(story)


def test_samples_are_told_apart(play: Callable[[Story], None]) -> None:
    async def story(llm: AsyncLLM) -> None:
        params = SamplingParams(n=3, seed=1, max_tokens=10, ignore_eos=True)
        deltas = await collect(llm.stream("Hello", params))
        output = deltas[-1].output
        assert output is not None
        assert len({o.text for o in output.outputs}) > 1
        for sample in output.outputs:
            assert "".join(d.text for d in deltas if d.index == sample.index) == sample.text

    play(story)


def test_p26_a_closed_stream_gives_its_blocks_back(play: Callable[[Story], None]) -> None:
    async def story(llm: AsyncLLM) -> None:
        params = SamplingParams(seed=1, max_tokens=100, ignore_eos=True)
        async with aclosing(llm.stream("Hello", params)) as stream:
            async for delta in stream:
                if delta.token_ids:
                    break
        await until(lambda: llm.stats().num_used_blocks == llm.stats().num_running == 0)

    play(story)


def test_p26_a_reader_may_leave_at_any_moment(play: Callable[[Story], None]) -> None:
    async def story(llm: AsyncLLM) -> None:
        prompt = await llm.encode("Hello")
        params = SamplingParams(seed=1, max_tokens=100, ignore_eos=True)
        for num_turns in range(12):  # of the event loop, each a place where it may be left
            reading = asyncio.create_task(llm.generate(prompt, params))
            for _ in range(num_turns):
                await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        await until(lambda: llm.stats().num_used_blocks == llm.stats().num_running == 0)

    play(story)


def test_bad_requests_are_refused_and_the_engine_lives(
    play: Callable[[Story], None], expected: list[str]
) -> None:
    async def story(llm: AsyncLLM) -> None:
        with pytest.raises(PromptTooLongError, match="shorten the prompt"):
            await llm.generate([1] * llm.max_model_len)
        for ids in ([-1], [2**40]):
            with pytest.raises(ConfigError, match="not in the vocabulary"):
                await llm.generate(ids)
        with pytest.raises(ConfigError, match="stop_token_ids"):
            await llm.generate("Hello", SamplingParams(stop_token_ids=(10**6,)))
        assert (await llm.generate(PROMPTS[0], PARAMS)).text == expected[0]

    play(story)


def test_an_id_serves_one_request_at_a_time(play: Callable[[Story], None]) -> None:
    async def story(llm: AsyncLLM) -> None:
        async with aclosing(llm.stream("Hello", PARAMS, request_id="it")) as stream:
            await anext(stream)
            with pytest.raises(ConfigError, match="already in use"):
                await llm.generate("Hello", PARAMS, request_id="it")
        await llm.generate("Hello", PARAMS, request_id="it")

    play(story)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    async def story(own_process: bool) -> None:
        with pytest.raises(ModelNotFoundError):
            await AsyncLLM(tmp_path / "none.gguf", own_process=own_process).start()

    for own_process in (False, True):
        asyncio.run(story(own_process))


def test_what_the_engine_refuses_to_load_is_raised(path: Path) -> None:
    async def story(own_process: bool) -> None:
        config = EngineConfig(max_model_len=10_000, kv_memory_bytes=1)
        with pytest.raises(Exception, match="bytes of keys"):
            await AsyncLLM(path, config=config, numerics="exact", own_process=own_process).start()

    for own_process in (False, True):
        asyncio.run(story(own_process))


def process_of(llm: AsyncLLM) -> int:
    client = llm._client
    assert isinstance(client, ProcessClient) and client.pid is not None
    return client.pid


async def with_process(path: Path, story: Callable[[AsyncLLM], Awaitable[None]]) -> None:
    async with AsyncLLM(path, config=CONFIG, numerics="exact", own_process=True) as llm:
        await asyncio.wait_for(story(llm), 60)


def test_p27_an_engine_that_is_killed_fails_its_requests_and_is_replaced(
    path: Path, expected: list[str]
) -> None:
    async def story(llm: AsyncLLM) -> None:
        pid = process_of(llm)
        params = SamplingParams(seed=1, max_tokens=100, ignore_eos=True)
        num_blocks = llm.stats().num_blocks
        with pytest.raises(EngineDiedError, match="SIGKILL"):
            async for delta in llm.stream("Hello", params):
                if delta.token_ids:
                    os.kill(pid, signal.SIGKILL)
        assert (llm.stats().num_running, llm.stats().num_used_blocks) == (0, 0)
        assert (await llm.generate(PROMPTS[0], PARAMS)).text == expected[0]
        assert process_of(llm) != pid
        assert (llm.stats().num_restarts, llm.stats().num_blocks) == (1, num_blocks)

    asyncio.run(with_process(path, story))


def test_an_engine_that_dies_again_and_again_is_given_up(path: Path) -> None:
    async def story(llm: AsyncLLM) -> None:
        for _ in range(3):
            await until(lambda: llm.is_ready)
            os.kill(process_of(llm), signal.SIGKILL)
            await until(lambda: not llm.is_ready)
        await until(lambda: llm.failure is not None)
        with pytest.raises(EngineDiedError, match="3 times in a row"):
            await llm.generate("Hello")

    asyncio.run(with_process(path, story))


def test_closing_ends_the_process_and_what_it_runs(path: Path) -> None:
    async def story() -> None:
        llm = await AsyncLLM(path, config=CONFIG, numerics="exact", own_process=True).start()
        pid = process_of(llm)
        params = SamplingParams(seed=1, max_tokens=100, ignore_eos=True)
        running = asyncio.create_task(llm.generate("Hello", params))
        await until(lambda: llm.stats().num_generated_tokens > 2)
        await llm.close()
        with pytest.raises(EngineDiedError):
            await running
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(story())


def test_closing_with_patience_lets_answers_end(path: Path, expected: list[str]) -> None:
    async def story() -> None:
        llm = await AsyncLLM(path, config=CONFIG, numerics="exact", own_process=True).start()
        running = asyncio.create_task(llm.generate(PROMPTS[0], PARAMS))
        await until(lambda: llm.stats().num_generated_tokens > 2)
        await llm.close(drain_seconds=30)
        assert (await running).text == expected[0]

    asyncio.run(story())


def test_a_recorder_needs_the_same_process(path: Path) -> None:
    from firstword.trace.recorder import Recorder

    with pytest.raises(ConfigError, match="own_process"):
        AsyncLLM(path, own_process=True, recorder=Recorder())
