"""POST /v1/completions: raw prompts, one or several."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from firstword.errors import EngineDiedError
from firstword.sampling.params import SamplingParams
from firstword.server.chat import ChatService, TextRequest
from firstword.server.openai.completions import run_together
from tests.server.fake_llm import FakeAsyncLLM, Script
from tests.server.openai.api import TEXT, Api, scripted


def texts(chunks: list[dict[str, Any]]) -> dict[int, str]:
    result: dict[int, str] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            result[choice["index"]] = result.get(choice["index"], "") + choice["text"]
    return result


def test_whole_answer_has_the_shape_of_the_api() -> None:
    body = scripted("x" * 50).whole(TEXT)
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [
        {"index": 0, "text": "x" * 16, "logprobs": None, "finish_reason": "length"}
    ]
    assert body["usage"]["completion_tokens"] == 16  # the API's default limit


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [(64, 65)]),
        ([1, 2, 3], [(1, 2, 3)]),
        (["a", "b"], [(64,), (65,)]),
        ([[1], [2, 3]], [(1,), (2, 3)]),
    ],
)
def test_prompts_of_every_form(prompt: object, ids: list[tuple[int, ...]]) -> None:
    api = Api()
    body = api.whole(TEXT, prompt=prompt, n=2)
    assert sorted(request.prompt.token_ids for request in api.llm.requests) == ids
    assert [choice["index"] for choice in body["choices"]] == list(range(2 * len(ids)))
    assert body["usage"]["prompt_tokens"] == sum(map(len, ids))


def test_raw_prompts_parse_control_tokens() -> None:
    api = Api()
    api.whole(TEXT, prompt="<|im_end|>")
    assert len(api.llm.requests[0].prompt.token_ids) == 1


def test_stream_has_the_shape_of_the_api() -> None:
    first, second, end, usage = scripted("Hi").chunks(TEXT, stream_options={"include_usage": True})
    assert first["object"] == "text_completion"
    assert first["choices"] == [{"index": 0, "text": "H", "logprobs": None, "finish_reason": None}]
    assert second["choices"][0]["text"] == "i"
    assert end["choices"] == [{"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 8


@pytest.mark.parametrize("size", [1, 3, 100])
def test_p29_stream_is_the_whole_answer_at_every_chunking(size: int) -> None:
    api = scripted("né 🙂 STOP!", samples=("other",), tokens_per_delta=size)
    asked = {"prompt": ["a", "b"], "n": 2, "stop": "STOP", "logprobs": 2, "max_tokens": 30}
    whole = api.whole(TEXT, **asked)["choices"]
    chunks = api.chunks(TEXT, **asked)
    assert texts(chunks) == {choice["index"]: choice["text"] for choice in whole}
    assert [choice["text"] for choice in whole] == ["né 🙂 ", "other"] * 2
    for name in whole[0]["logprobs"]:
        for choice in whole:
            streamed = [
                value
                for chunk in chunks
                for part in chunk["choices"]
                if part["index"] == choice["index"] and part["logprobs"]
                for value in part["logprobs"][name]
            ]
            assert streamed == choice["logprobs"][name]


def test_usage_so_far_is_over_all_prompts() -> None:
    options = {"continuous_usage_stats": True}
    chunks = scripted("Hi").chunks(TEXT, prompt=["a", "bc"], stream_options=options)
    assert chunks[-1]["usage"]["completion_tokens"] == 6
    assert chunks[-1]["usage"]["prompt_tokens"] == 3


def test_resolved_request_is_one_for_each_prompt() -> None:
    api = Api()
    asked = {"prompt": ["a", "bc"], "return_resolved": True, "return_prompt_token_ids": True}
    resolved = api.whole(TEXT, **asked)["resolved"]
    assert [one["prompt_token_ids"] for one in resolved] == [[64], [65, 66]]
    assert resolved[0]["max_tokens"] == 16
    chunk = next(chunk for chunk in api.chunks(TEXT, **asked) if "resolved" in chunk)
    assert chunk["resolved"] == resolved


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"logprobs": 51}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 2}, "best_of"),
        ({"max_completion_tokens": 2}, "max_completion_tokens"),
    ],
)
def test_wrong_values_are_a_400_that_names_the_field(fields: dict[str, Any], param: str) -> None:
    assert Api().refused(TEXT, **fields)["param"] == param


def test_harmless_values_of_refused_fields_are_taken() -> None:
    assert Api().post(TEXT, echo=False, suffix="", best_of=1).status_code == 200


def test_empty_prompt_is_a_400() -> None:
    assert "no tokens" in Api().refused(TEXT, prompt="")["message"]


def test_first_failure_ends_all_prompts() -> None:
    llm = FakeAsyncLLM(Script("Hello", failure=EngineDiedError("gone"), failure_after=2))
    service = ChatService(llm)
    requests = [TextRequest(f"r{i}", "a", SamplingParams()) for i in range(3)]

    async def read() -> None:
        async for _ in run_together(service, requests):
            pass

    with pytest.raises(EngineDiedError):
        asyncio.run(read())
    assert not llm.live


def test_closing_ends_all_prompts() -> None:
    llm = FakeAsyncLLM(Script("Hello", delay=0.001))
    requests = [TextRequest(f"r{i}", "a", SamplingParams()) for i in range(3)]

    async def read() -> None:
        events = run_together(ChatService(llm), requests)
        await anext(events)
        await events.aclose()

    asyncio.run(read())
    assert not llm.live
    assert sorted(llm.aborted) == ["r0", "r1", "r2"]
