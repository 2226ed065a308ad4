"""A measurement from its first word to its last: sizes learned, server warmed up, phases run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from firstword.bench.serving.client import Client
from firstword.bench.serving.exchange import Exchange
from firstword.bench.serving.http import RequestFailedError
from firstword.bench.serving.load import Listener, LoadGenerator
from firstword.bench.serving.prompts import Count, PromptMaker, Sizer, calibrate
from firstword.bench.serving.workloads import WORKLOADS, Sizes, distinct
from firstword.errors import ConfigError

_WARM_UP_SEEDS = 2**32
"""From here on: warm-up prompts are none of those that are measured."""


@dataclass
class Measurement:
    """Runs workloads against one server; `exchanges` grows while they run.

    Args:
        client: of the server.
        listener: told of each exchange that counts.
        exchanges: all that counted so far.
    """

    client: Client
    listener: Listener = lambda exchange: None
    exchanges: list[Exchange] = field(default_factory=list)
    _sizer: Sizer | None = None

    async def run(self, workload: str, sizes: Sizes, warm_up: int = 0) -> list[Exchange]:
        """Run a workload.

        Args:
            workload: one of WORKLOADS.
            sizes: of it.
            warm_up: requests before it that do not count.

        Returns:
            The exchanges of this workload.

        Raises:
            ConfigError: there is no such workload, keys are missing for it, or the server does
                not answer.
        """
        if workload not in WORKLOADS:
            raise ConfigError(f"workload is {workload!r}: choose from {', '.join(WORKLOADS)}")
        if workload == "two-keys" and len(self.client.target.api_keys) == 1:
            raise ConfigError("two-keys with one API key: give two, or none")
        if self._sizer is None:
            self._sizer = await self._calibrate()
        await self._warm_up(sizes, self._sizer, warm_up)
        first = len(self.exchanges)
        generator = LoadGenerator(self.client, self._keep)
        for phase in WORKLOADS[workload](sizes, PromptMaker(self._sizer, sizes.seed)):
            await generator.run(phase)
        return self.exchanges[first:]

    def _keep(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        self.listener(exchange)

    async def _warm_up(self, sizes: Sizes, sizer: Sizer, count: int) -> None:
        same = replace(sizes, requests=count, rate=None, concurrency=max(count, 1))
        for phase in distinct(same, PromptMaker(sizer, _WARM_UP_SEEDS + sizes.seed)):
            await LoadGenerator(self.client, lambda exchange: None).run(phase)

    async def _calibrate(self) -> Sizer:
        try:
            return await calibrate(self._count_prompt, await tokenize_route(self.client))
        except (RequestFailedError, TimeoutError) as error:
            url = self.client.target.base_url
            raise ConfigError(f"the server at {url} does not answer a chat: {error}") from error

    async def _count_prompt(self, text: str) -> int:
        exchange = Exchange("calibration")
        await self.client.ask(exchange, [{"role": "user", "content": text}], 1)
        if exchange.usage is None:
            raise RequestFailedError(exchange.error or "no usage", exchange.detail)
        return exchange.usage.prompt


async def tokenize_route(client: Client) -> Count | None:
    """How the server counts tokens of a text, by /tokenize; None where it does not.

    vLLM and firstword take `prompt` and say `count`; llama.cpp takes `content` and lists tokens.
    """

    async def by_prompt(text: str) -> int:
        fields = {"model": client.target.model, "prompt": text, "add_special_tokens": False}
        return _count(await client.post("/tokenize", fields))

    async def by_content(text: str) -> int:
        return _count(await client.post("/tokenize", {"content": text}))

    routes: tuple[Callable[[str], Awaitable[int]], ...] = (by_prompt, by_content)
    for route in routes:
        try:
            if await route("one two") > 0:
                return route
        except RequestFailedError:
            continue
    return None


def _count(answer: object) -> int:
    fields = answer if isinstance(answer, dict) else {}
    count, tokens = fields.get("count"), fields.get("tokens")
    if isinstance(count, int):
        return count
    return len(tokens) if isinstance(tokens, list) else 0
