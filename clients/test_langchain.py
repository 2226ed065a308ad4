from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from questions import FORM_LIMIT, LIMIT, QUESTION, WEATHER_QUESTION, City
from questions import weather as weather_of


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return weather_of(city[:20])


@pytest.fixture
def chat(v1: str, model: str) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=v1, api_key="none", model=model, max_tokens=LIMIT, temperature=0, max_retries=0
    )


def test_invoke(chat: ChatOpenAI) -> None:
    answer = chat.invoke(QUESTION)
    assert answer.content
    assert answer.usage_metadata["output_tokens"] > 0


def test_stream(chat: ChatOpenAI) -> None:
    assert (
        "".join(chunk.content for chunk in chat.stream(QUESTION)) == chat.invoke(QUESTION).content
    )


async def test_async(chat: ChatOpenAI) -> None:
    assert (await chat.ainvoke(QUESTION)).content


def test_bound_tools(chat: ChatOpenAI) -> None:
    bound = chat.bind_tools([weather], tool_choice="any").bind(max_tokens=FORM_LIMIT)
    question = HumanMessage(WEATHER_QUESTION)
    answer = bound.invoke([question])
    assert [call["name"] for call in answer.tool_calls]
    results = [
        ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
        for call in answer.tool_calls
    ]
    assert chat.invoke([question, answer, *results]).content


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(chat: ChatOpenAI, method: str) -> None:
    structured = chat.model_copy(update={"max_tokens": FORM_LIMIT}).with_structured_output(
        City, method=method
    )
    assert isinstance(structured.invoke(QUESTION), City)
