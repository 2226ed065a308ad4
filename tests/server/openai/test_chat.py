"""POST /v1/chat/completions: requests, answers whole and streamed, refusals."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword import __version__
from firstword.engine.outputs import PromptProgress
from firstword.errors import (
    CapacityError,
    EngineDiedError,
    GrammarError,
    QueueFullError,
    SamplingError,
)
from firstword.kvcache.sources import PromptSources
from firstword.sampling.params import Grammar
from tests.server.fake_llm import CHATML, FakeAsyncLLM, Script, byte_tokenizer
from tests.server.openai.api import CHAT, HELLO, Api, scripted

THINKING = CHATML + "{# <think></think> enable_thinking reasoning_effort #}"


def thinking(text: str, **how: Any) -> Api:
    return Api(FakeAsyncLLM(Script(text, **how), tokenizer=byte_tokenizer(THINKING)))


def joined(chunks: list[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """The message that a stream's deltas add up to, and its finish_reason."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "finish_reason": None}
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                for key in ("content", "reasoning_content"):
                    message[key] += choice["delta"].get(key) or ""
                message["finish_reason"] = choice["finish_reason"] or message["finish_reason"]
    return message


# --- whole answers ---


def test_whole_answer_has_the_shape_of_the_api() -> None:
    body = scripted("Hi there").whole(CHAT, max_completion_tokens=5)
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == "fake:1m"
    assert isinstance(body["created"], int)
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi th", "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 24,
        "completion_tokens": 5,
        "total_tokens": 29,
        "prompt_tokens_details": {
            "cached_tokens": 0,
            "cached_tokens_by_source": {"memory": 0, "disk": 0, "neighbour": 0},
            "computed_tokens": 24,
        },
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_samples_are_choices() -> None:
    body = scripted("one", samples=("two",)).whole(CHAT, n=2)
    assert [choice["message"]["content"] for choice in body["choices"]] == ["one", "two"]
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert body["usage"]["completion_tokens"] == 8  # end tokens included


def test_reasoning_is_told_from_content() -> None:
    body = thinking("<think>hm</think>Yes", sources=PromptSources(7)).whole(CHAT)
    message = body["choices"][0]["message"]
    assert message["reasoning_content"] == "hm"
    assert message["content"] == "Yes"
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 17
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 7


def test_reasoning_stays_in_content_if_asked() -> None:
    body = thinking("<think>hm</think>Yes").whole(CHAT, separate_reasoning=False)
    assert body["choices"][0]["message"]["content"] == "<think>hm</think>Yes"


def test_resolved_request_can_be_asked_for() -> None:
    api = scripted("Hello")
    body = api.whole(CHAT, return_resolved=True, return_prompt_token_ids=True, top_p=0.5)
    resolved = body["resolved"]
    assert (resolved["seed"], resolved["top_p"], resolved["temperature"]) == (1234, 0.5, 1.0)
    assert resolved["max_tokens"] == 1000 - 24
    assert resolved["prompt_token_ids"] == list(api.llm.requests[0].prompt.token_ids)
    chunk = next(c for c in api.chunks(CHAT, return_resolved=True, top_p=0.5) if "resolved" in c)
    del resolved["prompt_token_ids"]
    assert chunk["resolved"] == resolved


# --- streams ---


def test_stream_has_the_shape_of_the_api() -> None:
    chunks = scripted("Hi").chunks(CHAT, stream_options={"include_usage": True})
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    role, first, second, end, usage = chunks
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert first["choices"] == [
        {"index": 0, "delta": {"content": "H"}, "logprobs": None, "finish_reason": None}
    ]
    assert second["choices"][0]["delta"] == {"content": "i"}
    assert end["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_stream_without_usage_never_mentions_it() -> None:
    assert all("usage" not in chunk for chunk in scripted("Hi").chunks(CHAT))


def test_usage_so_far_in_every_chunk_if_asked() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = scripted("Hi").chunks(CHAT, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk["usage"]]
    assert counts == [0, 1, 2, 3, 3]


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.integers(1, 12),
    st.lists(st.sampled_from(["e", "l", "🙂"]), max_size=2),
    st.integers(1, 40),
)
def test_p29_stream_is_the_whole_answer_at_every_chunking(
    text: str, size: int, stop: list[str], max_tokens: int
) -> None:
    api = thinking(f"<think>{text}</think>Hello 🙂 {text}", tokens_per_delta=size)
    asked = {"max_completion_tokens": max_tokens, "stop": stop, "logprobs": True}
    choice = api.whole(CHAT, **asked)["choices"][0]
    chunks = api.chunks(CHAT, **asked)
    message = joined(chunks)
    assert message["content"] == (choice["message"]["content"] or "")
    assert message["reasoning_content"] == choice["message"].get("reasoning_content", "")
    assert message["finish_reason"] == choice["finish_reason"]
    streamed = [c["choices"][0]["logprobs"] for c in chunks if c["choices"]]
    entries = [entry for logprobs in streamed if logprobs for entry in logprobs["content"]]
    assert entries == choice["logprobs"]["content"]


def test_p16_stop_string_split_over_tokens_is_in_neither_answer() -> None:
    api = scripted("one STOP two")
    assert api.whole(CHAT, stop=["STOP"])["choices"][0]["message"]["content"] == "one "
    message = joined(api.chunks(CHAT, stop="STOP"))
    assert message == {"content": "one ", "reasoning_content": "", "finish_reason": "stop"}


def test_p15_no_delta_has_half_a_character_and_logprob_bytes_are_exact() -> None:
    text = "né 🙂!"
    api = scripted(text)
    chunks = api.chunks(CHAT, logprobs=True, top_logprobs=2)
    contents = [c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]]
    assert "".join(contents) == text
    assert "�" not in "".join(contents)
    content = api.whole(CHAT, logprobs=True)["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in content for byte in entry["bytes"]) == text.encode()


def test_p21_both_probabilities_are_given_and_named() -> None:
    choice = scripted("a").whole(CHAT, logprobs=True, top_logprobs=2)["choices"][0]
    entry = choice["logprobs"]["content"][0]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("a", -0.5, [97])
    assert entry["sampled_probability"] == 0.75
    assert [top["token"] for top in entry["top_logprobs"]] == ["a", "b"]
    assert choice["logprobs"]["refusal"] is None
    assert len(choice["logprobs"]["content"]) == 2  # the end token too, which adds no bytes
    assert choice["logprobs"]["content"][1]["bytes"] == []


def test_prefill_progress_is_a_comment_and_data_if_asked() -> None:
    progress = (
        PromptProgress(4000, PromptSources(), 0, 2, 0.5),
        PromptProgress(4000, PromptSources(128), 512, 0, 1.5),
    )
    api = scripted("Hi", progress=progress)
    text = api.post(CHAT, stream=True).text
    assert text.startswith(": queued behind 2\n\n: prefill 512/4000 cached 128\n\ndata: ")
    told = [
        c["prompt_progress"] for c in api.chunks(CHAT, return_progress=True) if not c["choices"]
    ]
    assert told[1] == {"total": 4000, "cache": 128, "processed": 512, "time_ms": 1500, "ahead": 0}


# --- tools ---

ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def call_text(number: int) -> str:
    return f'<tool_call>\n{{"name": "add", "arguments": {{"a": {number}}}}}\n</tool_call>'


@pytest.mark.parametrize("size", [1, 3, 10, 1000])
def test_p29_streamed_calls_add_up_to_the_whole_ones(size: int) -> None:
    script = Script(f"{call_text(1)}\n{call_text(2)}", tokens_per_delta=size)
    api = Api(FakeAsyncLLM(script, tokenizer=byte_tokenizer(CHATML + "{# <tool_call> #}")))
    choice = api.whole(CHAT, tools=[ADD])["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    whole = [(call["type"], call["function"]) for call in choice["message"]["tool_calls"]]
    assert [json.loads(function["arguments"]) for _, function in whole] == [{"a": 1}, {"a": 2}]
    calls: dict[int, dict[str, Any]] = {}
    for chunk in api.chunks(CHAT, tools=[ADD]):
        for delta in chunk["choices"][0]["delta"].get("tool_calls", ()):
            if "id" in delta:
                calls[delta["index"]] = delta
            else:
                arguments = delta["function"]["arguments"]
                calls[delta["index"]]["function"]["arguments"] += arguments
    assert [(call["type"], call["function"]) for call in calls.values()] == whole
    assert len({call["id"] for call in calls.values()}) == 2


def test_conversation_with_calls_goes_round() -> None:
    tokenizer = byte_tokenizer(CHATML + "{# <tool_call> #}")
    api = Api(FakeAsyncLLM(Script(call_text(1)), tokenizer=tokenizer))
    message = api.whole(CHAT, tools=[ADD])["choices"][0]["message"]
    answer = {"role": "tool", "content": "2", "tool_call_id": message["tool_calls"][0]["id"]}
    api.llm.script = Script("It is 2.")
    body = api.whole(CHAT, tools=[ADD], messages=[*HELLO, message, answer])
    assert body["choices"][0]["message"]["content"] == "It is 2."
    assert body["choices"][0]["finish_reason"] == "stop"


def test_tool_choice_may_name_a_tool() -> None:
    api = Api(FakeAsyncLLM(Script(call_text(1)), tokenizer=byte_tokenizer(CHATML + "<tool_call>")))
    named = {"type": "function", "function": {"name": "add"}}
    api.whole(CHAT, tools=[ADD], tool_choice=named)
    assert api.llm.requests[0].params.grammar is not None
    other = {"type": "function", "function": {"name": "sub"}}
    error = api.refused(CHAT, tools=[ADD], tool_choice=other)
    assert error["param"] == "tool_choice.function.name"
    assert api.refused(CHAT, tools=[ADD, ADD])["param"] == "tools[1].function.name"


# --- what the engine is asked for ---


def test_defaults_are_those_of_the_api() -> None:
    api = Api()
    api.whole(CHAT)
    params = api.llm.requests[0].params
    assert (params.temperature, params.top_p, params.n, params.max_tokens) == (1.0, 1.0, 1, None)
    assert params.penalty_scope == "output"


def test_p22_penalties_count_the_output_unless_asked() -> None:
    api = Api()
    api.whole(CHAT, presence_penalty=1, frequency_penalty=-1, repetition_penalty=1.5)
    api.whole(CHAT, presence_penalty=1, penalty_scope="all")
    first, second = (request.params for request in api.llm.requests)
    assert (first.presence_penalty, first.frequency_penalty) == (1, -1)
    assert (first.repetition_penalty, first.penalty_scope) == (1.5, "output")
    assert second.penalty_scope == "all"


def test_response_format_is_a_grammar() -> None:
    api = Api()
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    api.whole(CHAT, response_format=wanted)
    api.whole(CHAT, response_format={"type": "json_object"})
    api.whole(CHAT, response_format={"type": "text"})
    grammars = [request.params.grammar for request in api.llm.requests]
    assert grammars == [Grammar("json_schema", json.dumps(schema)), Grammar("json_object"), None]


def test_held_answer_is_all_content() -> None:
    body = thinking('<think>{"a": 1}').whole(CHAT, guided_regex=".*")
    assert body["choices"][0]["message"]["content"] == '<think>{"a": 1}'


def test_reasoning_effort_reaches_templates_that_read_it() -> None:
    api = thinking("x")
    api.whole(CHAT, reasoning_effort="low", chat_template_kwargs={"date": "today"})
    assert api.llm.variables == {"reasoning_effort": "low", "date": "today"}
    api.whole(CHAT, reasoning_effort="none")
    assert api.llm.variables == {"enable_thinking": False}
    assert Api().refused(CHAT, reasoning_effort="low")["param"] == "reasoning_effort"


def test_key_salt_and_priority_reach_the_engine() -> None:
    api = Api()

    @api.app.middleware("http")
    async def sign(request: Any, call_next: Any) -> Any:
        request.state.key, request.state.salt = "alice", "s"
        return await call_next(request)

    api.whole(CHAT, priority=5, cache_salt="t")
    options = api.llm.requests[0].options
    assert (options.key, options.salt, options.priority) == ("alice", "st", 5)


# --- refusals ---


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 101}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens"),
        ({"stop": ""}, "stop"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"logit_bias": {"300000": 1}}, "logit_bias"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 1000}}, "logit_bias"),
        ({"stop_token_ids": [300000]}, "stop_token_ids"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 51}, "logprobs"),
        ({"seed": 2**64}, "seed"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"return_progress": True}, "return_progress"),
        ({"return_prompt_token_ids": True}, "return_prompt_token_ids"),
        ({"min_tokens": 5, "max_tokens": 2}, "min_tokens"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"guided_regex": "a", "guided_json": {}}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "", "x": 1}]}, "messages[0].x"),
    ],
)
def test_wrong_values_are_a_400_that_names_the_field(fields: dict[str, Any], param: str) -> None:
    api = Api()
    error = api.refused(CHAT, **fields)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert not api.llm.live


def test_p30_prompt_that_does_not_fit_is_refused_with_both_numbers() -> None:
    for stream in (False, True):
        messages = [{"role": "user", "content": "x" * 2000}]
        error = Api().refused(CHAT, messages=messages, stream=stream)
        assert error["code"] == "context_length_exceeded"
        assert "2019 tokens" in error["message"]
        assert "1000" in error["message"]


def test_p19_template_errors_are_a_400() -> None:
    template = "{{ raise_exception('no system message') }}"
    api = Api(FakeAsyncLLM(tokenizer=byte_tokenizer(template)))
    error = api.refused(CHAT)
    assert "no system message" in error["message"]
    assert error["code"] == "invalid_messages"


def test_model_without_template_is_a_400() -> None:
    api = Api(FakeAsyncLLM(tokenizer=byte_tokenizer(None)))
    assert "no chat template" in api.refused(CHAT)["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (GrammarError("not supported", "/properties/a"), 400, "invalid_grammar"),
        (CapacityError("never fits"), 400, "capacity_exceeded"),
        (QueueFullError("full", 2.5), 503, "queue_full"),
        (QueueFullError("yours is full", 2.5, key_only=True), 429, "rate_limit_exceeded"),
        (EngineDiedError("the engine ended"), 503, "engine_restarting"),
        (SamplingError("no token"), 500, "sampling_failed"),
        (ZeroDivisionError("secret"), 500, "internal_error"),
    ],
)
def test_errors_before_the_first_token_have_their_status(
    error: Exception, status: int, code: str, stream: bool
) -> None:
    response = scripted("", refusal=error).post(CHAT, stream=stream)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert "secret" not in response.text
    assert ("retry-after" in response.headers) == (status in (429, 503))


def test_error_after_the_stream_began_is_a_chunk() -> None:
    api = scripted("Hello", failure=EngineDiedError("the engine ended"), failure_after=2)
    chunks = api.chunks(CHAT)
    assert chunks[-1] == {
        "error": {
            "message": "the engine ended",
            "type": "server_error",
            "param": None,
            "code": "engine_restarting",
        }
    }
    assert [c["choices"][0]["delta"].get("content") for c in chunks[1:-1]] == ["H", "e"]
    assert api.ended[0].usage.completion == 2


# --- clients that go away ---


async def abandon(api: Api, after: int, **fields: object) -> list[dict[str, Any]]:
    """Send a request whose client goes after `after` messages of the response."""
    body = json.dumps({"model": "fake:1m", "messages": HELLO} | fields).encode()
    sent: list[dict[str, Any]] = []
    gone = asyncio.Event()
    requests = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if requests:
            return requests.pop()
        if after:
            await gone.wait()
        else:
            await asyncio.sleep(0.02)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) >= after:
            gone.set()

    headers = [(b"content-type", b"application/json"), (b"host", b"test")]
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": CHAT,
        "raw_path": CHAT.encode(),
    }
    scope |= {"headers": headers, "query_string": b"", "http_version": "1.1", "scheme": "http"}
    scope |= {"asgi": {"version": "3.0", "spec_version": "2.3"}, "root_path": ""}
    await asyncio.wait_for(api.app(scope, receive, send), 5)
    return sent


@pytest.mark.parametrize("stream", [False, True])
def test_p26_client_gone_while_queued_or_in_prefill_ends_the_request(stream: bool) -> None:
    progress = (PromptProgress(100, PromptSources(10), 50, 0, 0.1),)
    api = scripted("Hi", progress=progress, never_ends=True)
    asyncio.run(abandon(api, 0, stream=stream))
    assert not api.llm.live
    assert len(api.llm.aborted) == 1
    usage = api.ended[0].usage
    assert (usage.prompt, usage.cached, usage.completion) == (24, 10, 0)


def test_p26_client_gone_while_decoding_ends_the_request_with_usage() -> None:
    api = scripted("Hello, how are you?", delay=0.005)
    asyncio.run(abandon(api, 4, stream=True))
    assert not api.llm.live
    assert len(api.llm.aborted) == 1
    assert api.ended[0].output is None
    assert 2 <= api.ended[0].usage.completion < 10


SCHEMA = {"type": "object", "properties": {"a": {"nullable": True}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            "response_format.json_schema.schema/properties/a",
        ),
        ({"response_format": {"type": "json_object"}}, "response_format/properties/a"),
        ({"guided_json": SCHEMA}, "guided_json/properties/a"),
        ({"guided_regex": "a"}, "guided_regex/properties/a"),
        ({}, None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_grammar_errors_name_the_field_and_the_place_in_it(
    fields: dict[str, Any], param: str | None, stream: bool
) -> None:
    api = scripted("", refusal=GrammarError("no", "/properties/a"))
    assert api.refused(CHAT, **fields, stream=stream)["param"] == param


@pytest.mark.parametrize("stream", [False, True])
def test_a_tools_schema_is_refused_by_its_place_in_the_body(stream: bool) -> None:
    tools = [
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "add", "parameters": SCHEMA}},
    ]
    error = Api().refused(CHAT, tools=tools, tool_choice="required", stream=stream)
    assert error["param"] == "/tools/1/function/parameters/properties/a/nullable"
    assert error["code"] == "invalid_grammar"
    assert Api().post(CHAT, tools=tools).status_code == 200  # nothing is held to it


@pytest.mark.parametrize("fields", [{}, {"model": None}])
def test_the_served_model_is_the_default(fields: dict[str, Any]) -> None:
    response = Api().request("POST", CHAT, json={"messages": HELLO, **fields})
    assert response.json()["model"] == "fake:1m"


def test_fingerprint_is_of_version_backend_and_model() -> None:
    (answer, *_) = Api().chunks(CHAT)
    assert answer["system_fingerprint"] == f"firstword-{__version__}-fake-f"
    assert Api().whole(CHAT)["system_fingerprint"] == answer["system_fingerprint"]


def test_error_after_a_keep_alive_is_a_chunk_before_the_end() -> None:
    llm = FakeAsyncLLM(Script("", refusal=QueueFullError("full", 2.5), refusal_after=0.05))
    (told,) = Api(llm, keep_alive=0.01).chunks(CHAT)
    assert told["error"]["code"] == "queue_full"
