from __future__ import annotations

import pytest

from firstword.engine.outputs import PromptProgress
from firstword.errors import EngineDiedError
from firstword.kvcache.sources import PromptSources
from tests.server.anthropic.harness import (
    CALL,
    WEATHER,
    ask,
    body,
    client_of,
    collect,
    new_llm,
    stream,
)


def test_the_order_of_events() -> None:
    kinds = [event["type"] for event in stream(new_llm("Hi"))]
    assert kinds == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_start_has_the_prompt_and_the_end_the_answer() -> None:
    events = stream(new_llm("Hi", sources=PromptSources(3)))
    start, end = events[0]["message"], events[-2]
    assert (start["content"], start["stop_reason"]) == ([], None)
    assert start["usage"]["input_tokens"] > 0
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end["usage"]["output_tokens"] == 3
    assert end["usage"]["cache_read_input_tokens"] == 3


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('Hello\n"you" \\ there', {}),
        ("日本語 \U0001f600 é", {}),
        ("<think>Hm.</think>\n\nYes.", {}),
        ("So:\n" + CALL + "\n" + CALL, {"tools": [WEATHER]}),
        ("one two three", {"stop_sequences": ["two"]}),
        ("one two three", {"max_tokens": 4}),
        ("", {}),
    ],
)
@pytest.mark.parametrize("tokens_per_delta", [1, 3, 1000])
def test_p29_a_stream_adds_up_to_the_whole_answer(
    text: str, fields: dict[str, object], tokens_per_delta: int
) -> None:
    streamed = collect(stream(new_llm(text, tokens_per_delta=tokens_per_delta), **fields))
    whole = ask(new_llm(text), **fields)
    for message in (streamed, whole):
        message.pop("id")
        message["usage"].pop("output_tokens_details", None)  # counted as the text comes
        for block in message["content"]:
            block.pop("id", None)
    assert streamed == whole


def test_progress_is_told_in_comments() -> None:
    progress = PromptProgress(100, PromptSources(), 40, 0, 0.5)
    response = client_of(new_llm("Hi", progress=(progress,))).post(
        "/v1/messages", json=body(stream=True)
    )
    assert response.text.startswith(": prefill 40/100")


def test_an_error_before_the_first_event_has_a_status() -> None:
    died = EngineDiedError("the engine process ended")
    llm = new_llm(refusal=died)
    response = client_of(llm).post("/v1/messages", json=body(stream=True))
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "api_error"


def test_an_error_after_the_first_event_is_an_event() -> None:
    died = EngineDiedError("the engine process ended")
    last = stream(new_llm("Hello", failure=died, failure_after=2))[-1]
    assert last["type"] == "error"
    assert last["error"] == {"type": "api_error", "message": "the engine process ended"}
    assert last["request_id"]


def test_an_unforeseen_error_says_nothing_of_itself(caplog: pytest.LogCaptureFixture) -> None:
    last = stream(new_llm("Hello", failure=ValueError("secret"), failure_after=2))[-1]
    assert last["type"] == "error"
    assert "secret" not in str(last)
    assert "secret" in caplog.text
