"""Requests of a mixed load, and what the answer to each has to be; not when they come."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from benchmarks.endurance.served import Served, words
from firstword.bench.serving.client import Client, Target
from firstword.bench.serving.exchange import Exchange
from firstword.bench.serving.http import RequestFailedError

_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "old": {"type": "boolean"}},
    "required": ["name", "old"],
    "additionalProperties": False,
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {
            "type": "object",
            "properties": {"kind": {"enum": ["noun", "verb"]}},
            "required": ["kind"],
            "additionalProperties": False,
        },
    },
}
_BAD: tuple[Mapping[str, object], ...] = (
    {"temperature": "hot"},
    {"messages": []},
    {"max_tokens": -1},
    {"model": "unknown"},
    {"logit_bias": {"x": 1}},
    {"best_of": 3},
    {"guided_json": {"$ref": "#/nowhere"}},
)  # fmt: skip


@dataclass
class Tally:
    """What came of the load so far.

    Args:
        exchanges: streamed answers since they were last taken.
        num_requests: of every kind.
        errors: what went wrong, a line each.
    """

    exchanges: list[Exchange] = field(default_factory=list)
    num_requests: int = 0
    errors: list[str] = field(default_factory=list)


class Mixture:
    """Sends requests of all kinds to a server.

    Args:
        served: the server.
        keys: its API keys, one of which each request uses.
        seed: of what is sent.
        tally: receives what comes of it.
    """

    def __init__(self, served: Served, keys: tuple[str, ...], seed: int, tally: Tally) -> None:
        self._served, self._keys, self._tally = served, keys, tally
        self._chance = random.Random(seed)
        self._first: object = None  # what the same request gave the first time
        self._kinds: Mapping[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "chat": (8, self._chat),
            "long prompt": (1, self._long),
            "constrained": (2, self._constrained),
            "tools": (2, self._tools),
            "cut short": (3, self._cut),
            "bad body": (3, self._bad),
            "tokenization": (2, self._tokenization),
            "message": (2, self._message),
            "the same again": (1, self._again),
        }

    async def one(self) -> None:
        """Send a request of some kind and look at what comes of it."""
        names = list(self._kinds)
        (name,) = self._chance.choices(names, [self._kinds[name][0] for name in names])
        self._tally.num_requests += 1
        try:
            await self._kinds[name][1]()
        except (RequestFailedError, TimeoutError, ValueError, LookupError, AssertionError) as error:
            self._tally.errors.append(f"{name}: {type(error).__name__} {error}")

    def _words(self, low: int, high: int) -> str:
        return words(self._chance.randint(low, high), self._chance.randrange(10**9))

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._chance.choice(self._keys)}"}

    async def _stream(self, group: str, prompt: str, max_tokens: int, **extra: object) -> Exchange:
        key = self._chance.randrange(len(self._keys))
        target = Target(str(self._served.address), self._served.model, self._keys, extra=extra)
        client = Client(target)
        exchange = Exchange(group, key, started=client.clock())
        await client.ask(exchange, [{"role": "user", "content": prompt}], max_tokens)
        if exchange.error is not None:
            raise RequestFailedError(exchange.error, exchange.detail)
        return exchange

    # --- the kinds ---

    async def _chat(self) -> None:
        seed, size = self._chance.randrange(10**9), self._chance.randint(8, 96)
        prompt = self._words(5, 120)
        exchange = await self._stream("chat", prompt, size, temperature=0.8, seed=seed)
        assert exchange.usage is not None and exchange.usage.completion == size, exchange.usage
        self._tally.exchanges.append(exchange)

    async def _long(self) -> None:
        await self._stream("long", self._words(900, 1500), 16)

    async def _constrained(self) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": _SCHEMA}}
        seed = self._chance.randrange(10**9)
        exchange = await self._stream(
            "constrained", self._words(5, 30), 120, response_format=form, temperature=1.5, seed=seed
        )
        if exchange.finish_reason == "stop":  # else it was as long as it may be
            assert set(json.loads(exchange.text)) == {"name", "old"}, exchange.text

    async def _tools(self) -> None:
        body = self._served.chat(
            self._words(5, 30), 120, tools=[_TOOL], tool_choice="required", ignore_eos=False,
            parallel_tool_calls=False,
        )  # fmt: skip
        reply = await self._served.ask("/v1/chat/completions", body, self._headers())
        assert reply.status == 200, reply.body
        choices = reply.json()["choices"]
        assert isinstance(choices, list)
        call = choices[0]["message"]["tool_calls"][0]["function"]
        assert json.loads(call["arguments"])["kind"] in ("noun", "verb"), call

    async def _cut(self) -> None:
        body = self._served.chat(self._words(5, 600), 200)
        patience = self._chance.random()
        events = self._served.events("/v1/chat/completions", body, self._headers())
        with suppress(TimeoutError):
            async with asyncio.timeout(patience), aclosing(events):  # type: ignore[type-var]
                async for _ in events:
                    pass

    async def _bad(self) -> None:
        body = self._served.chat("Hello", 4) | dict(self._chance.choice(_BAD))
        reply = await self._served.ask("/v1/chat/completions", body, self._headers())
        assert 400 <= reply.status < 500, (reply.status, reply.body)
        assert "error" in reply.json(), reply.body

    async def _tokenization(self) -> None:
        text = self._words(5, 400)
        fields = {"model": self._served.model, "prompt": text, "add_special_tokens": False}
        reply = await self._served.ask("/tokenize", fields, self._headers())
        tokens = reply.json()["tokens"]
        back = {"model": self._served.model, "tokens": tokens}
        reply = await self._served.ask("/detokenize", back, self._headers())
        assert reply.json()["prompt"] == text, reply.body

    async def _message(self) -> None:
        message = {"role": "user", "content": self._words(5, 60)}
        body = {"model": self._served.model, "max_tokens": 24, "messages": [message]}
        headers = {"x-api-key": self._chance.choice(self._keys), "anthropic-version": "2023-06-01"}
        reply = await self._served.ask("/v1/messages", body, headers)
        assert reply.status == 200 and reply.json()["type"] == "message", reply.body

    async def _again(self) -> None:
        body = self._served.chat("What is gravity?", 24, seed=3, temperature=1.0, logprobs=True)
        reply = await self._served.ask("/v1/chat/completions", body, self._headers())
        answer = reply.json()["choices"]
        self._first = self._first or answer
        assert answer == self._first, "the same request gave other tokens"
