"""What slow and silent clients cost the others: gaps between events, memory, sockets.

Run as: .venv/bin/python -m scripts.slow_clients. A server with a fake model streams to four
readers, first alone, then beside 200 idle connections, 50 that send their headers slowly, 50 that
stop in the middle of a body, 10 that read a byte per second of a long stream and 10 that read
nothing. Not here: what the engine does for them (the engine's own tests).
"""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

NUM_READERS, NUM_EVENTS, LONG = 4, 200, 60_000
_BODY = {"model": "fake:1m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
_SETTINGS = {"log_level": "error", "keep_alive_seconds": 60.0}
_SCRIPT = {"text": "a" * LONG, "delay": 0.02}
_TOLD = {"script": _SCRIPT, "settings": _SETTINGS, "model": {"max_model_len": 2 * LONG}}

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request(max_tokens: int) -> bytes:
    """A chat's request, streamed."""
    body = json.dumps(_BODY | {"max_tokens": max_tokens}).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json"
    return f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def gaps_of_readers(port: int) -> list[float]:
    """Milliseconds between the events that well-behaved readers see."""

    async def read() -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(NUM_EVENTS))
        times = []
        while b"[DONE]" not in (line := await reader.readline()):
            if line.startswith(b"data:"):
                times.append(time.monotonic())
        writer.close()
        return [1000 * (b - a) for a, b in pairwise(times)]

    gaps = await asyncio.gather(*(read() for _ in range(NUM_READERS)))
    return [gap for of_one in gaps for gap in of_one]


async def bad_clients(port: int) -> tuple[list[Connection], list[asyncio.Task[None]]]:
    """All kinds of them, connected, and what keeps them going."""
    opened = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(320)]
    heads, bodies, slow, silent = opened[200:250], opened[250:300], opened[300:310], opened[310:]
    for _, writer in heads:
        writer.write(b"GET / HTTP/1.1\r\n")
    for _, writer in bodies:
        writer.write(request(1)[:-10])
    for reader, writer in slow + silent:
        writer.write(request(LONG))
        if (reader, writer) in silent:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
    return opened, [asyncio.create_task(_dawdle(heads, slow))]


async def _dawdle(heads: list[Connection], slow: list[Connection]) -> None:
    while True:
        await asyncio.sleep(1)
        for _, writer in heads:
            writer.write(b"x")
        for reader, _ in slow:
            await reader.read(1)


class Server:
    """The server under test."""

    def __init__(self) -> None:
        command = (sys.executable, "-m", "tests.server.serving", json.dumps(_TOLD))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(b":")[2])

    def figures(self) -> str:
        """Memory and open files of its process."""
        path = Path(f"/proc/{self.process.pid}")
        memory = int((path / "status").read_text().partition("VmRSS:")[2].split()[0]) // 1024
        return f"{memory} MB, {len(list((path / 'fd').iterdir()))} files"


def row(name: str, gaps: list[float], server: Server) -> None:
    """Print a line of figures."""
    ordered = sorted(gaps)
    p95 = ordered[int(0.95 * len(ordered))]
    print(
        f"{name:24} {len(gaps)} gaps, median {statistics.median(gaps):.2f} ms, p95 {p95:.2f} ms, "
        f"longest {ordered[-1]:.1f} ms; {server.figures()}",
        flush=True,
    )


async def compare(server: Server) -> None:
    """Readers alone, beside bad clients, and after those have gone."""
    row("alone", await gaps_of_readers(server.port), server)
    opened, tasks = await bad_clients(server.port)
    for minute in ("beside bad clients", "beside them, later"):
        row(minute, await gaps_of_readers(server.port), server)
    for task in tasks:
        task.cancel()
    for _, writer in opened:
        writer.transport.abort()
    await asyncio.sleep(1)
    row("after they have gone", await gaps_of_readers(server.port), server)


def main() -> int:
    """Compare; returns the server's exit status."""
    server = Server()
    asyncio.run(compare(server))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.stdout is not None
    server.process.stdout.close()
    return server.process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
