from __future__ import annotations

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it is fetched at import

import litellm
import pytest
from questions import FORM_LIMIT, LIMIT, QUESTION, WEATHER_PARAMETERS, WEATHER_QUESTION

MESSAGES = [{"role": "user", "content": QUESTION}]


@pytest.fixture(params=["openai", "hosted_vllm", "anthropic"])
def asked(request: pytest.FixtureRequest, url: str, model: str) -> dict[str, object]:
    """The same question through each of its providers that this server speaks."""
    base = url if request.param == "anthropic" else f"{url}/v1"
    return {
        "model": f"{request.param}/{model}",
        "api_base": base,
        "api_key": "none",
        "messages": MESSAGES,
        "max_tokens": LIMIT,
        "temperature": 0,
    }


def test_a_completion(asked: dict[str, object]) -> None:
    answer = litellm.completion(**asked)
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens > 0


def test_a_stream(asked: dict[str, object]) -> None:
    chunks = litellm.completion(**asked, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == litellm.completion(**asked).choices[0].message.content


def test_a_tool(asked: dict[str, object]) -> None:
    function = {"name": "weather", "parameters": WEATHER_PARAMETERS}
    answer = litellm.completion(
        **asked
        | {
            "messages": [{"role": "user", "content": WEATHER_QUESTION}],
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
            "max_tokens": FORM_LIMIT,
        }
    )
    (call, *_) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Milan", "Turin")


def test_errors_are_the_clients_own(v1: str) -> None:
    with pytest.raises(litellm.NotFoundError):
        litellm.completion("openai/gpt-4", MESSAGES, api_base=v1, api_key="none")
