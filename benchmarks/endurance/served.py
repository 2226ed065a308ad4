"""A `firstword serve` process under test, and requests to it; not what is found out with them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from benchmarks.closing import Closing
from benchmarks.endurance.processes import children
from benchmarks.peers.session import EngineFailedError
from firstword.bench.serving.events import EventDecoder
from firstword.bench.serving.http import Address, Connection, RequestFailedError

Fields = Mapping[str, object]

PATIENCE = 120.0
"""Seconds that anything may take before a check is given up."""

POLL_SECONDS = 0.002
_TEXT = re.compile(r'"(?:content|text)":"[^"]')
_SAMPLE = re.compile(r"^firstword:(\w+)(?:\{.*\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Reply:
    """An answer that came whole.

    Args:
        status: of HTTP.
        body: its bytes.
    """

    status: int
    body: bytes

    def json(self) -> dict[str, object]:
        """The body as an object.

        Raises:
            ValueError: it is none.
        """
        value = json.loads(self.body)
        if not isinstance(value, dict):
            raise ValueError(f"no object: {self.body[:80]!r}")
        return value


class Served(Closing):
    """Starts `firstword serve` and waits until it answers.

    Args:
        model: a name or a path.
        flags: of the command line.

    Attributes:
        pid: of the process that speaks HTTP.
        lines: what it printed at its start.
        model: as clients name it.

    Raises:
        EngineFailedError: it ended instead.
    """

    def __init__(self, model: str, *flags: str) -> None:
        self._log = tempfile.TemporaryFile("w+")
        command = [sys.executable, "-m", "firstword", "serve", model, "--port", "0", *flags]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.pid, self.model = self._process.pid, model
        self.lines: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())
            if line.startswith("chat at "):
                break
        else:
            said = (self._process.wait(), self.log().strip())
            self.close()
            raise EngineFailedError(f"{model} is not served: status {said[0]}, {said[1]}")
        self.address = Address.parse(self.lines[-1].split()[2].rstrip("/,"))

    def close(self) -> None:
        """End the server, if it has not ended yet."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(40)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def log(self) -> str:
        """What it wrote to its log so far."""
        self._log.seek(0)
        return self._log.read()

    @property
    def engine_pid(self) -> int:
        """Of the engine's process."""
        return children(self.pid)[-1]

    @property
    def pids(self) -> tuple[int, int]:
        """Of both processes."""
        return self.pid, self.engine_pid

    def terminate(self) -> None:
        """Ask it to end, as an operator does."""
        self._process.send_signal(signal.SIGTERM)

    def kill_engine(self) -> None:
        """End the engine's process without a word."""
        os.kill(self.engine_pid, signal.SIGKILL)

    async def exit_status(self) -> int:
        """Its exit status, once it has ended."""
        return await asyncio.to_thread(self._process.wait, PATIENCE)

    # --- requests ---

    async def ask(
        self, path: str, fields: Fields | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send a request and wait for the whole answer; GET where there are no fields.

        Raises:
            RequestFailedError: the connection broke.
        """
        body = b"" if fields is None else json.dumps(fields).encode()
        method = "GET" if fields is None else "POST"
        async with asyncio.timeout(PATIENCE), Connection(self.address) as connection:
            status = await connection.send(method, path, _headers(headers), body)
            return Reply(status, await connection.read_all())

    async def events(
        self, path: str, fields: Fields, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[str]:
        """The data of each event of a streamed answer; closing it closes the connection.

        Raises:
            RequestFailedError: the connection broke, or the status is not 200.
        """
        body = json.dumps({**fields, "stream": True}).encode()
        async with Connection(self.address) as connection:
            status = await connection.send("POST", path, _headers(headers), body)
            if status != 200:
                detail = (await connection.read_all()).decode(errors="replace")
                raise RequestFailedError(f"HTTP {status}", detail)
            decoder = EventDecoder()
            while piece := await connection.read():
                for data in decoder.push(piece):
                    yield data

    async def metrics(self) -> dict[str, float]:
        """Each metric of ours, its labels left out; of several samples the last one."""
        reply = await self.ask("/metrics")
        return {name: float(value) for name, value in _SAMPLE.findall(reply.body.decode())}

    async def seconds_until(self, condition: Callable[[Mapping[str, float]], bool]) -> float:
        """Time until the metrics satisfy a condition.

        Raises:
            TimeoutError: they never did.
        """
        start = time.perf_counter()
        while not condition(await self.metrics()):
            if time.perf_counter() - start > PATIENCE:
                raise TimeoutError("the metrics did not become what was waited for")
            await asyncio.sleep(POLL_SECONDS)
        return time.perf_counter() - start

    def chat(self, content: str, max_tokens: int, **fields: object) -> dict[str, object]:
        """The body of a chat completion that runs to its full length."""
        message = {"role": "user", "content": content}
        common = {"model": self.model, "messages": [message], "max_tokens": max_tokens}
        return {**common, "ignore_eos": True, **fields}

    def completion(self, prompt: str, max_tokens: int) -> dict[str, object]:
        """The body of a completion that runs to its full length; it needs no chat template."""
        common = {"model": self.model, "prompt": prompt, "max_tokens": max_tokens}
        return {**common, "ignore_eos": True}


class Stream:
    """A streamed answer that runs as a task, so that it can be looked at, or cut off.

    Args:
        served: the server.
        fields: of the body.
        path: of the API.

    Attributes:
        events: data of the events so far.
        error: how the connection failed, if it did.
    """

    def __init__(self, served: Served, fields: Fields, path: str = "/v1/chat/completions") -> None:
        self.events: list[str] = []
        self.times: list[float] = []
        self.error: RequestFailedError | None = None
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run(served, path, fields))

    async def _run(self, served: Served, path: str, fields: Fields) -> None:
        try:
            async with aclosing(served.events(path, fields)) as events:  # type: ignore[type-var]
                async for data in events:
                    self.events.append(data)
                    self.times.append(time.perf_counter())
                    self._news.set()
        except RequestFailedError as error:
            self.error = error
        finally:
            self._news.set()

    @property
    def has_text(self) -> bool:
        """Whether the answer has begun."""
        return any(map(_TEXT.search, self.events))

    async def until_text(self) -> None:
        """Wait for the first text of the answer.

        Raises:
            RequestFailedError: the stream ended without.
        """
        seen = 0
        async with asyncio.timeout(PATIENCE):
            while True:
                if any(map(_TEXT.search, self.events[seen:])):
                    return
                seen = len(self.events)
                if self._task.done():
                    raise self.error or RequestFailedError("closed early", "no text came")
                self._news.clear()
                await self._news.wait()

    async def end(self) -> None:
        """Wait until the answer is over."""
        async with asyncio.timeout(PATIENCE):
            await self._task

    async def cut(self) -> None:
        """Close the connection at once."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _headers(further: Mapping[str, str] | None) -> dict[str, str]:
    return {"Content-Type": "application/json", **(further or {})}


def words(count: int, seed: int) -> str:
    """A prompt of so many words, its own for every seed: about a token each."""
    import random

    chosen = random.Random(seed).choices(_WORDS, k=count)
    return " ".join(chosen)


_WORDS = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work government "
    "number night point home water room mother area money story fact month lot right study book"
).split()
