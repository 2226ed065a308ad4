"""The fake model with what a process that serves asks of it besides, and an app around it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx
from fastapi import FastAPI

from firstword.engine.stats import EngineStats
from firstword.errors import FirstwordError
from tests.server.fake_llm import FakeAsyncLLM

Act = Callable[[httpx.AsyncClient], Awaitable[None]]

CHAT: dict[str, object] = {"model": "fake:1m", "messages": [{"role": "user", "content": "Hi"}]}
MESSAGE: dict[str, object] = {**CHAT, "max_tokens": 50}


@dataclass
class OperatedFake(FakeAsyncLLM):
    """The interface of `AsyncLLM`, all of it that a server uses."""

    is_ready: bool = True
    failure: FirstwordError | None = None
    figures: EngineStats = field(default_factory=lambda: EngineStats(num_blocks=100))
    num_closed: int = 0
    on_gap: Callable[[float], None] | None = None

    def stats(self) -> EngineStats:
        return self.figures

    async def close(self, drain_seconds: float = 0) -> None:
        self.num_closed += 1


def with_client(app: FastAPI, act: Act) -> None:
    """Run `act` with a client of the app."""

    async def session() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await act(client)

    asyncio.run(session())
