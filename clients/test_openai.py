from __future__ import annotations

import asyncio
import json

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from questions import (
    FORM_LIMIT,
    LIMIT,
    QUESTION,
    WEATHER_PARAMETERS,
    WEATHER_QUESTION,
    City,
    weather,
)

MESSAGES = [{"role": "user", "content": QUESTION}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": WEATHER_PARAMETERS,
    },
}


@pytest.fixture
def client(v1: str) -> OpenAI:
    return OpenAI(base_url=v1, api_key="none", max_retries=0)


def test_models(client: OpenAI, model: str) -> None:
    assert [found.id for found in client.models.list()] == [model]
    assert client.models.retrieve(model).id == model


def test_a_chat(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=MESSAGES, max_completion_tokens=LIMIT, temperature=0
    )
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert 0 < answer.usage.completion_tokens <= LIMIT
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_async(v1: str, model: str) -> None:
    async with AsyncOpenAI(base_url=v1, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=model, messages=MESSAGES, max_tokens=LIMIT, stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert text


def test_a_stream_adds_up_to_the_whole_answer(client: OpenAI, model: str) -> None:
    asked = {
        "model": model,
        "messages": MESSAGES,
        "max_tokens": LIMIT,
        "seed": 7,
        "logprobs": True,
        "top_logprobs": 2,
    }
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2


def test_a_stopped_stream_leaves_the_server_well(client: OpenAI, model: str) -> None:
    with client.chat.completions.create(model=model, messages=MESSAGES, stream=True) as stream:
        next(iter(stream))
    assert client.models.list().data


def test_completions(client: OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt=["The capital of Italy is", "Two and two"], max_tokens=8, n=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert all(choice.text for choice in answer.choices)


def test_a_tool_loop_of_two_turns(client: OpenAI, model: str) -> None:
    messages = [{"role": "user", "content": WEATHER_QUESTION}]
    first = client.chat.completions.create(
        model=model,
        messages=messages,
        tools=[TOOL],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=FORM_LIMIT,
    )
    assert first.choices[0].finish_reason == "tool_calls"
    (call,) = first.choices[0].message.tool_calls
    assert call.function.name == "weather"
    result = weather(**json.loads(call.function.arguments))
    messages += [
        first.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]
    second = client.chat.completions.create(
        model=model, messages=messages, tools=[TOOL], tool_choice="none", max_tokens=LIMIT
    )
    assert second.choices[0].message.content
    assert second.choices[0].message.tool_calls is None


def test_streamed_arguments_add_up(client: OpenAI, model: str) -> None:
    with client.chat.completions.stream(
        model=model,
        messages=[{"role": "user", "content": WEATHER_QUESTION}],
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        max_tokens=FORM_LIMIT,
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    arguments = json.loads(final.choices[0].message.tool_calls[0].function.arguments)
    assert arguments["city"] in ("Rome", "Milan", "Turin")


def test_parse_with_pydantic(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.parse(
        model=model, messages=MESSAGES, response_format=City, max_tokens=FORM_LIMIT
    )
    assert isinstance(answer.choices[0].message.parsed, City)


def test_parse_of_a_tool(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.parse(
        model=model,
        messages=MESSAGES,
        tools=[openai.pydantic_function_tool(City)],
        tool_choice="required",
        max_tokens=FORM_LIMIT,
    )
    call = answer.choices[0].message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, City)


def test_errors_are_the_clients_own(client: OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-4"):
        client.chat.completions.create(model="gpt-4", messages=MESSAGES)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "many words " * 20_000}]
        )
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, extra_body={"colour": 1})
    assert caught.value.param == "colour"


async def test_many_at_once_get_their_own_answers(v1: str, model: str) -> None:
    async def ask(client: AsyncOpenAI, seed: int) -> str:
        answer = await client.chat.completions.create(
            model=model, messages=MESSAGES, max_tokens=LIMIT, seed=seed
        )
        return answer.choices[0].message.content or ""

    async with AsyncOpenAI(base_url=v1, api_key="none", max_retries=0) as client:
        alone = [await ask(client, seed) for seed in range(4)]
        assert await asyncio.gather(*(ask(client, seed) for seed in range(4))) == alone


def test_a_completion_as_a_stream(client: OpenAI, model: str) -> None:
    asked = {"model": model, "prompt": "Rome is", "max_tokens": LIMIT, "temperature": 0}
    whole = client.completions.create(**asked)
    chunks = client.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text != ""


def test_schema_that_cannot_be_held_is_named(client: OpenAI, model: str) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer", "nullable": True}}}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=MESSAGES, response_format=form)
    assert caught.value.param == "response_format.json_schema.schema/properties/age/nullable"
