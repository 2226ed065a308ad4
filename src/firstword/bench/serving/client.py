"""A client of any server with OpenAI's API; it times answers and leaves the tokens to `usage`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from firstword.bench.serving.events import EventDecoder
from firstword.bench.serving.exchange import Exchange, Usage
from firstword.bench.serving.http import Address, Connection, RequestFailedError
from firstword.errors import ConfigError

Message = Mapping[str, str]
"""`role` and `content`."""


@dataclass(frozen=True)
class Target:
    """A server and how it is asked.

    Args:
        base_url: with the API's /v1, or without.
        model: as the server names it.
        api_keys: requests name one by its place; none where the server asks for none.
        ignore_eos: whether answers go on to their full length.
        timeout: seconds that a request may take.
        extra: further fields of each request's body.
    """

    base_url: str
    model: str
    api_keys: Sequence[str] = ()
    ignore_eos: bool = True
    timeout: float = 600.0
    extra: Mapping[str, object] = field(default_factory=dict)

    def body(self, messages: Sequence[Message], max_tokens: int) -> bytes:
        """The body of a streamed chat completion at temperature 0."""
        fields: dict[str, object] = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.ignore_eos:
            fields["ignore_eos"] = True
        return json.dumps(fields | dict(self.extra)).encode()


class Client:
    """Sends requests to a target.

    Args:
        target: the server.
        clock: seconds; monotonic.
    """

    def __init__(self, target: Target, clock: Callable[[], float] = time.perf_counter) -> None:
        self.target = target
        self.clock = clock
        address = Address.parse(target.base_url)
        root = address.path.removesuffix("/v1")
        self._address = Address(address.host, address.port, address.tls, root)

    async def ask(
        self,
        exchange: Exchange,
        messages: Sequence[Message],
        max_tokens: int,
        leave_after: float | None = None,
    ) -> None:
        """Have a chat answered, and note in `exchange` how that went; failures are noted too.

        Args:
            exchange: with its group, key and start.
            messages: the conversation so far.
            max_tokens: of the answer.
            leave_after: seconds after which the client goes away; None to stay.
        """
        body = self.target.body(messages, max_tokens)
        patience = self.target.timeout if leave_after is None else leave_after
        try:
            async with asyncio.timeout(patience):
                await self._stream(exchange, body)
        except TimeoutError:
            if leave_after is None:
                exchange.error = "timeout"
                exchange.detail = f"{self.target.timeout:g} s passed"
            else:
                exchange.left = True
        except RequestFailedError as error:
            exchange.error, exchange.detail = error.kind, error.detail

    async def _stream(self, exchange: Exchange, body: bytes) -> None:
        async with Connection(self._address) as connection:
            headers = self._headers(exchange.key) | {"Accept": "text/event-stream"}
            status = await connection.send("POST", "/v1/chat/completions", headers, body)
            if status != 200:
                raise RequestFailedError(f"HTTP {status}", _message(await connection.read_all()))
            answer = _Answer(exchange)
            decoder = EventDecoder()
            while not answer.is_done and (piece := await connection.read()):
                now = self.clock()
                for data in decoder.push(piece):
                    answer.take(data, now)
            answer.finish()

    async def post(self, path: str, fields: Mapping[str, object]) -> object:
        """The JSON that a path of the server gives for another.

        Raises:
            RequestFailedError: there is no proper answer with status 200.
        """
        return await self._call("POST", path, json.dumps(dict(fields)).encode())

    async def models(self) -> list[str]:
        """The names of the models that the server has.

        Raises:
            RequestFailedError: it does not say.
        """
        answer = await self._call("GET", "/v1/models", b"")
        entries = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(entries, list):
            raise RequestFailedError("malformed answer", "/v1/models has no list")
        return [str(entry.get("id")) for entry in entries if isinstance(entry, dict)]

    async def _call(self, method: str, path: str, body: bytes) -> object:
        async with asyncio.timeout(self.target.timeout), Connection(self._address) as connection:
            status = await connection.send(method, path, self._headers(0), body)
            answer = await connection.read_all()
        if status != 200:
            raise RequestFailedError(f"HTTP {status}", _message(answer))
        return _parse(answer.decode("utf-8", "replace"))

    def _headers(self, key: int) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.target.api_keys:
            headers["Authorization"] = f"Bearer {self.target.api_keys[key]}"
        return headers


async def resolve_model(target: Target) -> str:
    """The target's model, or the server's first where the target names none.

    Raises:
        ConfigError: no server answers there, or it has no model.
    """
    try:
        names = [target.model] if target.model else await Client(target).models()
    except (RequestFailedError, TimeoutError) as error:
        raise ConfigError(
            f"no model list from {target.base_url} ({error}): start a server there, or name "
            "another with --base-url"
        ) from error
    if not names:
        raise ConfigError(f"the server at {target.base_url} has no model: name one with --model")
    return names[0]


class _Answer:
    """What the events of an answer say, put into its exchange."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._pieces: list[str] = []
        self._last: float | None = None
        self.is_done = False

    def take(self, data: str, now: float) -> None:
        """Take an event's data, which arrived now."""
        if data == "[DONE]":
            self.is_done = True
            return
        event = _parse(data)
        if not isinstance(event, dict):
            raise RequestFailedError("malformed answer", f"event {data[:40]!r}")
        if event.get("error"):
            raise RequestFailedError("error in the stream", _message(data.encode()))
        if isinstance(event.get("usage"), dict):
            self._exchange.usage = _usage(event["usage"])
        for choice in event.get("choices") or ():
            self._take_choice(choice, now)

    def _take_choice(self, choice: object, now: float) -> None:
        if not isinstance(choice, dict):
            raise RequestFailedError("malformed answer", "a choice is no object")
        content, has_text = _text(choice.get("delta"))
        if has_text:
            self._pieces.append(content)
            self._exchange.text_times.append(now)
            self._last = now
        if choice.get("finish_reason"):
            self._exchange.finish_reason = str(choice["finish_reason"])
            self._last = now

    def finish(self) -> None:
        """The stream is over: the exchange is complete, or lacks something."""
        self._exchange.text = "".join(self._pieces)
        if self._exchange.finish_reason is None:
            raise RequestFailedError("closed early", "no finish_reason came")
        self._exchange.ended = self._last
        if self._exchange.usage is None:
            raise RequestFailedError("no usage", "the server did not count the tokens")


def _text(delta: object) -> tuple[str, bool]:
    """The answer's text in a delta, and whether the delta holds anything that was generated."""
    if not isinstance(delta, dict):
        return "", False
    content = delta.get("content") or ""
    others = ("reasoning_content", "reasoning", "tool_calls")
    return str(content), bool(content) or any(delta.get(name) for name in others)


def _usage(fields: Mapping[str, object]) -> Usage:
    details = fields.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    counts = (fields.get("prompt_tokens"), cached or 0, fields.get("completion_tokens"))
    numbers = [count for count in counts if isinstance(count, int)]
    if len(numbers) != len(counts):
        raise RequestFailedError("malformed answer", f"usage {str(dict(fields))[:80]}")
    return Usage(*numbers)


def _parse(text: str) -> object:
    try:
        value: object = json.loads(text)
    except ValueError:
        raise RequestFailedError("malformed answer", f"no JSON: {text[:40]!r}") from None
    return value


def _message(body: bytes) -> str:
    """What an error's body says, in at most 200 characters."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text).get("error")
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, AttributeError, KeyError):
        pass
    return text[:200]
