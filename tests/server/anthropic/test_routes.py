from __future__ import annotations

import json
from typing import Any

import pytest

from firstword.errors import PromptTooLongError, QueueFullError
from firstword.server.anthropic.stream import PING
from tests.server.anthropic.harness import WEATHER, ask, body, client_of, new_llm

PATH = "/v1/messages"


def refused(status: int, **fields: Any) -> dict[str, Any]:
    response = client_of(new_llm()).post(PATH, json=body(**fields))
    assert response.status_code == status, response.text
    told: dict[str, Any] = response.json()
    assert told["type"] == "error"
    assert told["request_id"] == response.headers["request-id"]
    error: dict[str, Any] = told["error"]
    return error


def test_tokens_are_counted_as_they_are_read() -> None:
    llm = new_llm()
    count = {"messages": body()["messages"], "model": "fake:1m", "system": "Be brief."}
    response = client_of(llm).post(f"{PATH}/count_tokens", json=count)
    assert response.json() == {"input_tokens": ask(llm, **count)["usage"]["input_tokens"]}
    with_tools = client_of(llm).post(f"{PATH}/count_tokens", json={**count, "tools": [WEATHER]})
    assert with_tools.json()["input_tokens"] > response.json()["input_tokens"]


def test_counting_is_refused_as_answering_is() -> None:
    response = client_of(new_llm()).post(f"{PATH}/count_tokens", json={"model": "fake:1m"})
    assert response.status_code == 400
    assert "messages is missing" in response.json()["error"]["message"]


@pytest.mark.parametrize("field", ["container", "mcp_servers", "temprature", "n"])
def test_fields_that_are_not_supported_are_refused_by_name(field: str) -> None:
    error = refused(400, **{field: [1]})
    assert error["type"] == "invalid_request_error"
    assert field in error["message"]


def test_inert_fields_change_nothing() -> None:
    inert = {
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "cache_control": {"type": "ephemeral"},
        "speed": "standard",
    }
    marked = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "user", "content": marked}]
    plain = ask(new_llm())
    answer = ask(new_llm(), messages=messages, **inert)
    assert (answer["content"], answer["usage"]) == (plain["content"], plain["usage"])


def test_another_model_is_not_found() -> None:
    error = refused(404, model="claude")
    assert error["type"] == "not_found_error"
    assert "fake:1m" in error["message"]


def test_a_body_that_is_no_json() -> None:
    response = client_of(new_llm()).post(
        PATH, content=b"{", headers={"content-type": "application/json"}
    )
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_a_prompt_that_does_not_fit() -> None:
    response = client_of(new_llm(refusal=PromptTooLongError(9, 8))).post(PATH, json=body())
    assert response.status_code == 400
    assert "9 tokens" in response.json()["error"]["message"]


def test_a_full_queue_says_when_to_come_again() -> None:
    full = QueueFullError("64 requests wait", 2.5)
    response = client_of(new_llm(refusal=full)).post(PATH, json=body())
    assert response.status_code == 503
    assert response.headers["retry-after"] == "3"
    assert response.json()["error"]["type"] == "overloaded_error"


def test_beta_and_version_headers_are_taken() -> None:
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": "tools-2024-04-04"}
    response = client_of(new_llm()).post(PATH, json=body(), headers=headers)
    assert response.status_code == 200


def test_two_requests_have_two_ids() -> None:
    llm = new_llm()
    assert ask(llm)["id"] != ask(llm)["id"]
    assert llm.requests[0].request_id != llm.requests[1].request_id


def test_the_served_model_is_the_default() -> None:
    asked = {name: value for name, value in body().items() if name != "model"}
    response = client_of(new_llm()).post("/v1/messages", json=asked)
    assert response.json()["model"] == "fake:1m"
    del asked["max_tokens"]
    counted = client_of(new_llm()).post("/v1/messages/count_tokens", json=asked)
    assert counted.json()["input_tokens"] > 0


def test_error_after_a_ping_is_an_event() -> None:
    llm = new_llm(refusal=QueueFullError("full", 2.5), refusal_after=0.05)
    response = client_of(llm, keep_alive=0.01).post("/v1/messages", json=body(stream=True))
    assert response.status_code == 200
    *pings, error = response.text.removesuffix("\n\n").split("\n\n")
    assert set(pings) == {PING.decode().removesuffix("\n\n")}
    name, data = error.split("\n")
    told = json.loads(data.removeprefix("data: "))
    assert name == "event: error"
    assert told["error"]["type"] == "overloaded_error"
    assert told["request_id"] == response.headers["request-id"]


def test_a_tools_schema_is_refused_by_its_place_in_the_body() -> None:
    tool = {"name": "add", "input_schema": {"type": "object", "nullable": True}}
    asked = body(tools=[tool], tool_choice={"type": "any"})
    response = client_of(new_llm()).post("/v1/messages", json=asked)
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert message.startswith("/tools/0/input_schema/nullable: nullable cannot be enforced")
