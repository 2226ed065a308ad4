"""The OpenAI API over a fake model, called as a client calls it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI

from firstword.server.chat import ChatService, Ended
from firstword.server.openai import router
from tests.server.fake_llm import FakeAsyncLLM, Script

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HELLO = [{"role": "user", "content": "Hello"}]


@dataclass
class Api:
    """An app around a fake model.

    Args:
        llm: the model.
        keep_alive: seconds of silence after which a stream sends a comment.

    Attributes:
        ended: what the service told of requests that ended.
    """

    llm: FakeAsyncLLM = field(default_factory=FakeAsyncLLM)
    ended: list[Ended] = field(default_factory=list)
    keep_alive: float = 15.0

    def __post_init__(self) -> None:
        self.service = ChatService(self.llm, on_end=self.ended.append)
        self.app = FastAPI()
        self.app.include_router(router(self.service, keep_alive=self.keep_alive))

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **arguments)

        return asyncio.run(call())

    def post(self, path: str, **fields: object) -> httpx.Response:
        """One request; `model`, and `messages` or `prompt`, have defaults."""
        given: dict[str, object] = {"messages": HELLO} if path == CHAT else {"prompt": "Hello"}
        return self.request("POST", path, json={"model": "fake:1m"} | given | fields)

    def whole(self, path: str, **fields: object) -> dict[str, Any]:
        response = self.post(path, **fields)
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def chunks(self, path: str, **fields: object) -> list[dict[str, Any]]:
        """The chunks of a stream, which must end with [DONE]."""
        response = self.post(path, stream=True, **fields)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return parse_events(response.text)

    def refused(self, path: str, **fields: object) -> dict[str, Any]:
        """The error of a request that must be a 400."""
        response = self.post(path, **fields)
        assert response.status_code == 400, response.text
        error: dict[str, Any] = response.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


def parse_events(text: str) -> list[dict[str, Any]]:
    """The data of a stream's events."""
    events = [event for event in text.split("\n\n") if event]
    data = [event.removeprefix("data: ") for event in events if event.startswith("data: ")]
    assert all(event.startswith(("data: ", ": ")) for event in events)
    assert data[-1] == "[DONE]"
    return [json.loads(item) for item in data[:-1]]


def scripted(text: str, **how: Any) -> Api:
    """An app whose model answers `text`."""
    return Api(FakeAsyncLLM(Script(text, **how)))
