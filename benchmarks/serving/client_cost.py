"""What a client spends on each streamed event: ours, and httpx for comparison.

    python -m benchmarks.serving.client_cost

A process of its own sends 16 streams of 500 events as fast as it can; the processor time of the
client is divided by the number of events. On two cores, what the client takes the server lacks.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection as Pipe

from firstword.bench.serving.client import Client, Target
from firstword.bench.serving.exchange import Exchange

STREAMS = 16
EVENTS = 500
ROUNDS = 5
_EVENT = {
    "id": "chatcmpl-0123456789abcdef",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "smollm2:135m",
    "choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}],
}
_END = (
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
    {"choices": [], "usage": {"prompt_tokens": 150, "completion_tokens": EVENTS}},
)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_MESSAGES = ({"role": "user", "content": "hello"},)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _events(fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    # Closing a connection with a body unread would tear down what is still on its way.
    await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
    writer.write(_HEAD)
    one = _chunk(_events(_EVENT))
    for _ in range(EVENTS):
        writer.write(one)
        await writer.drain()
        await asyncio.sleep(0)  # the streams take turns, as they do in steps of a batch
    writer.write(b"".join(_chunk(_events(end)) for end in _END))
    writer.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    await writer.drain()
    writer.close()


def serve(pipe: Pipe) -> None:
    """Answer every request with a stream, on a port that is sent through the pipe."""

    async def forever() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(forever())


async def own(url: str) -> int:
    """All streams through our client; returns the number of events with text."""
    client = Client(Target(url, "model"))
    exchanges = [Exchange("cost") for _ in range(STREAMS)]
    await asyncio.gather(*(client.ask(exchange, _MESSAGES, EVENTS) for exchange in exchanges))
    return sum(len(exchange.text_times) for exchange in exchanges)


async def with_httpx(url: str) -> int:
    """All streams through httpx, parsed by the line; returns the number of events with text."""
    import httpx

    body = Target(url, "model").body(_MESSAGES, EVENTS)

    async def ask(client: httpx.AsyncClient) -> int:
        count = 0
        async with client.stream("POST", f"{url}/chat/completions", content=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    choices = json.loads(line[6:])["choices"]
                    count += bool(choices and choices[0]["delta"].get("content"))
        return count

    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=64)) as client:
        return sum(await asyncio.gather(*(ask(client) for _ in range(STREAMS))))


def cost(ask: Callable[[str], Awaitable[int]], url: str) -> float:
    """Microseconds of processor time per event, the least of a few rounds."""

    async def run() -> int:
        return await ask(url)

    best = float("inf")
    for _ in range(ROUNDS):
        before = time.process_time()
        count = asyncio.run(run())
        assert count == STREAMS * EVENTS, count
        best = min(best, (time.process_time() - before) / count)
    return 1e6 * best


def main() -> None:
    """Measure both clients."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1"
    for name, ask in (("firstword", own), ("httpx", with_httpx)):
        print(f"{name:<10}{cost(ask, url):7.1f} us per event")
    server.terminate()


if __name__ == "__main__":
    main()
