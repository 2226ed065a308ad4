from __future__ import annotations

import asyncio
from pathlib import Path

from firstword.config import EngineConfig
from firstword.engine.messages import Abort, LoadFailed, Message, Ready
from firstword.engine_thread import ThreadClient
from firstword.loading import LoadOptions
from tests.weights.tiny_gguf import write_tiny_llama

OPTIONS = LoadOptions(EngineConfig(enable_panel_cache=False), "exact")


def test_a_thread_runs_until_it_is_ended(tmp_path: Path) -> None:
    async def story() -> None:
        messages: list[Message] = []
        path = write_tiny_llama(tmp_path / "model.gguf")
        client = ThreadClient(str(path), OPTIONS, messages.append)
        client.send(Abort("before there is anything"))
        running = asyncio.create_task(client.run())
        while not messages:
            await asyncio.sleep(0.005)
        assert isinstance(messages[0], Ready)
        client.kill()
        assert await asyncio.wait_for(running, 10) == "was shut down"
        client.send(Abort("after its end"))

    asyncio.run(story())


def test_what_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        messages: list[Message] = []
        client = ThreadClient(str(tmp_path / "none.gguf"), OPTIONS, messages.append)
        await asyncio.wait_for(client.run(), 10)
        await asyncio.sleep(0)
        assert isinstance(messages[0], LoadFailed)

    asyncio.run(story())


def test_an_unforeseen_end_is_named(tmp_path: Path) -> None:
    async def story() -> None:
        client = ThreadClient(str(tmp_path), OPTIONS, lambda message: None)
        client._load_and_run = lambda deliver: 1 / 0  # type: ignore[method-assign, assignment]
        assert "ZeroDivisionError" in await asyncio.wait_for(client.run(), 10)

    asyncio.run(story())
