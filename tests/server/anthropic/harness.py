"""The API's paths on a model that answers by script."""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from firstword.server.anthropic.routes import router
from firstword.server.chat import ChatService
from tests.server.fake_llm import FakeAsyncLLM, Script, byte_tokenizer

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
WEATHER = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CHATML = (
    "{% if tools %}<|im_start|>system\n<tool_call> {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] or '' }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{% if not enable_thinking %}<think></think>{% endif %}"
)


def new_llm(text: str = "Hello", **script: Any) -> FakeAsyncLLM:
    return FakeAsyncLLM(Script(text, **script), byte_tokenizer(CHATML))


def client_of(llm: FakeAsyncLLM, keep_alive: float = 15.0) -> TestClient:
    app = FastAPI()
    app.include_router(router(ChatService(llm), keep_alive=keep_alive))
    return TestClient(app)


def body(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hi"}]
    return {"model": "fake:1m", "max_tokens": 500, "messages": messages, **fields}


def ask(llm: FakeAsyncLLM, **fields: Any) -> dict[str, Any]:
    """The answer to a body, which must be a 200."""
    response = client_of(llm).post("/v1/messages", json=body(**fields))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(llm: FakeAsyncLLM, **fields: Any) -> list[dict[str, Any]]:
    """The events of a streamed answer; each is named as its data says."""
    response = client_of(llm).post("/v1/messages", json=body(stream=True, **fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in response.text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            name, data = lines
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            events.append(event)
    return events


def collect(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a stream's events add up to."""
    message: dict[str, Any] = {}
    arguments: dict[int, str] = {}
    for event in events:
        kind = event["type"]
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif kind == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                index = event["index"]
                arguments[index] = arguments.get(index, "") + delta["partial_json"]
            else:
                name = delta["type"].removesuffix("_delta")
                block[name] += delta[name]
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    for index, text in arguments.items():
        message["content"][index]["input"] = json.loads(text)
    return message
