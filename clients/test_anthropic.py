from __future__ import annotations

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic
from questions import (
    FORM_LIMIT,
    LIMIT,
    QUESTION,
    WEATHER_PARAMETERS,
    WEATHER_QUESTION,
    weather,
)

MESSAGES = [{"role": "user", "content": QUESTION}]
TOOL = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": WEATHER_PARAMETERS,
}
GREEDY = {"temperature": 0}


@pytest.fixture
def client(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="none", max_retries=0)


def test_a_message(client: Anthropic, model: str) -> None:
    message = client.messages.create(
        model=model, messages=MESSAGES, max_tokens=LIMIT, system="Be brief.", extra_body=GREEDY
    )
    assert message.content[0].type == "text"
    assert message.content[0].text
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert 0 < message.usage.output_tokens <= LIMIT


def test_a_stream_adds_up_to_the_whole_answer(client: Anthropic, model: str) -> None:
    asked = {"model": model, "messages": MESSAGES, "max_tokens": LIMIT, "extra_body": GREEDY}
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.stop_reason == whole.stop_reason


def test_raw_events(client: Anthropic, model: str) -> None:
    events = client.messages.create(model=model, messages=MESSAGES, max_tokens=LIMIT, stream=True)
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


async def test_async(url: str, model: str) -> None:
    async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:
        async with client.messages.stream(
            model=model, messages=MESSAGES, max_tokens=LIMIT
        ) as stream:
            final = await stream.get_final_message()
    assert final.content


def test_a_stop_sequence(client: Anthropic, model: str) -> None:
    message = client.messages.create(
        model=model, messages=MESSAGES, max_tokens=200, stop_sequences=["e"], extra_body=GREEDY
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "e")
    assert "e" not in message.content[0].text if message.content else True


def test_tokens_are_counted_as_they_are_read(client: Anthropic, model: str) -> None:
    counted = client.messages.count_tokens(model=model, messages=MESSAGES, system="Be brief.")
    usage = client.messages.create(
        model=model, messages=MESSAGES, system="Be brief.", max_tokens=1
    ).usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted.input_tokens


def test_a_tool_loop_of_two_turns(client: Anthropic, model: str) -> None:
    messages = [{"role": "user", "content": WEATHER_QUESTION}]
    first = client.messages.create(
        model=model,
        messages=messages,
        tools=[TOOL],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        max_tokens=FORM_LIMIT,
    )
    assert first.stop_reason == "tool_use"
    (call,) = [block for block in first.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": weather(**call.input)}
    messages += [
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(
        model=model,
        messages=messages,
        tools=[TOOL],
        tool_choice={"type": "none"},
        max_tokens=LIMIT,
    )
    assert second.content[0].text
    assert second.stop_reason in ("end_turn", "max_tokens")


def test_streamed_input_adds_up(client: Anthropic, model: str) -> None:
    with client.messages.stream(
        model=model,
        messages=[{"role": "user", "content": WEATHER_QUESTION}],
        tools=[TOOL],
        tool_choice={"type": "tool", "name": "weather"},
        max_tokens=FORM_LIMIT,
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    assert "input_json" in kinds
    assert final.content[-1].input["city"] in ("Rome", "Milan", "Turin")


def test_errors_are_the_clients_own(client: Anthropic, model: str) -> None:
    with pytest.raises(anthropic.NotFoundError, match="claude"):
        client.messages.create(model="claude", messages=MESSAGES, max_tokens=1)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    with pytest.raises(anthropic.BadRequestError, match="image"):
        client.messages.create(
            model=model, messages=[{"role": "user", "content": [image]}], max_tokens=1
        )
    with pytest.raises(anthropic.BadRequestError, match="tokens"):
        long = [{"role": "user", "content": "many words " * 20_000}]
        client.messages.create(model=model, messages=long, max_tokens=1)
