"""Sends the traffic of a workload; what it consists of is said elsewhere (workloads)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from firstword.bench.serving.client import Client, Message
from firstword.bench.serving.exchange import Exchange
from firstword.bench.serving.workloads import Conversation, OpenLoop, Phase, Traffic

Listener = Callable[[Exchange], None]
"""Told of each exchange when it is over."""

_PAUSE_AFTER_FAILURE = 0.1  # seconds: a server that refuses is not asked a thousand times a second


@dataclass
class LoadGenerator:
    """Runs phases against a server.

    Args:
        client: that sends.
        listener: told of each exchange when it is over.
    """

    client: Client
    listener: Listener

    async def run(self, phase: Phase) -> None:
        """Run all traffic of a phase; returns when the last answer is complete.

        Background traffic begins no conversation after the other traffic has ended.
        """
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            foreground = [
                group.create_task(self._traffic(traffic, over, group))
                for traffic in phase.traffic
                if not traffic.background
            ]
            for traffic in phase.traffic:
                if traffic.background:
                    group.create_task(self._traffic(traffic, over, group))
            await asyncio.gather(*foreground)
            over.set()

    async def _traffic(
        self, traffic: Traffic, over: asyncio.Event, group: asyncio.TaskGroup
    ) -> None:
        await asyncio.sleep(traffic.delay)
        conversations = iter(traffic.conversations)
        if isinstance(traffic.arrival, OpenLoop):
            await asyncio.gather(*await self._arrivals(traffic, traffic.arrival, over, group))
            return
        clients = (
            self._client(traffic, conversations, over) for _ in range(traffic.arrival.clients)
        )
        await asyncio.gather(*(group.create_task(client) for client in clients))

    async def _client(
        self, traffic: Traffic, conversations: Iterator[Conversation], over: asyncio.Event
    ) -> None:
        for conversation in conversations:
            if traffic.background and over.is_set():
                return
            if not await self._talk(traffic.group, conversation, self.client.clock()):
                await asyncio.sleep(_PAUSE_AFTER_FAILURE)

    async def _arrivals(
        self, traffic: Traffic, loop: OpenLoop, over: asyncio.Event, group: asyncio.TaskGroup
    ) -> list[asyncio.Task[bool]]:
        begin, tasks = self.client.clock(), []
        for conversation, offset in zip(traffic.conversations, loop.arrivals(), strict=False):
            due = begin + offset
            await asyncio.sleep(due - self.client.clock())
            if traffic.background and over.is_set():
                break
            tasks.append(group.create_task(self._talk(traffic.group, conversation, due)))
        return tasks

    async def _talk(self, name: str, conversation: Conversation, due: float) -> bool:
        """Have a conversation; a failure ends it. Returns whether there was none."""
        messages: list[Message] = []
        for turn, said in enumerate(conversation.turns):
            messages.append({"role": "user", "content": said})
            exchange = Exchange(name, conversation.key, turn, due)
            await self.client.ask(
                exchange, messages, conversation.max_tokens, conversation.leave_after
            )
            self.listener(exchange)
            if not exchange.is_complete:
                return exchange.error is None
            messages.append({"role": "assistant", "content": exchange.text})
            due = self.client.clock()
        return True
