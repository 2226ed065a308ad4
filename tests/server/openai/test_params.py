"""Fields become sampling parameters."""

from __future__ import annotations

from typing import Any

import pytest

from firstword.errors import ConfigError
from firstword.sampling.params import Grammar, SamplingParams
from firstword.server.errors import RequestError
from firstword.server.openai.params import chat_params, completion_params, field_of, options_of
from firstword.server.openai.schema import ChatBody, CompletionBody


def chat(**fields: Any) -> ChatBody:
    messages = [{"role": "user", "content": "Hi"}]
    return ChatBody.model_validate({"model": "m", "messages": messages} | fields)


def completion(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"model": "m", "prompt": "Hi"} | fields)


def test_defaults_are_the_apis() -> None:
    assert chat_params(chat()) == SamplingParams()
    assert completion_params(completion()) == SamplingParams(max_tokens=16)


def test_either_name_of_the_limit() -> None:
    assert chat_params(chat(max_tokens=5)).max_tokens == 5
    assert chat_params(chat(max_completion_tokens=6)).max_tokens == 6
    assert chat_params(chat(max_tokens=7, max_completion_tokens=7)).max_tokens == 7


def test_logprobs_of_both_apis() -> None:
    assert chat_params(chat(logprobs=True)).logprobs == 0
    assert chat_params(chat(logprobs=True, top_logprobs=5)).logprobs == 5
    assert chat_params(chat(logprobs=False)).logprobs is None
    assert completion_params(completion(logprobs=0)).logprobs == 0


def test_negative_seeds_are_taken_modulo_their_range() -> None:
    assert chat_params(chat(seed=-1)).seed == 2**64 - 1


def test_top_p_of_zero_is_the_most_probable_token() -> None:
    assert 0 < chat_params(chat(top_p=0)).top_p < 1e-20


def test_forms() -> None:
    assert chat_params(chat(guided_json={"a": True})).grammar == Grammar(
        "json_schema", '{"a": true}'
    )
    assert chat_params(chat(guided_choice=["a", "b"])).grammar == Grammar("choice", '["a", "b"]')
    assert chat_params(chat(guided_regex="a+")).grammar == Grammar("regex", "a+")
    assert chat_params(chat(guided_grammar="start: x")).grammar == Grammar("lark", "start: x")


def test_number_that_json_cannot_write_is_refused() -> None:
    body = chat()
    body.guided_json = {"minimum": float("inf")}
    with pytest.raises(RequestError, match="too large"):
        chat_params(body)


@pytest.mark.parametrize("key", ["x", "", "-1", "1.0", "\u0661", "9" * 11])
def test_keys_of_logit_bias_are_token_ids(key: str) -> None:
    with pytest.raises(RequestError, match="logit_bias"):
        chat_params(chat(logit_bias={key: 1}))


def test_errors_name_their_field() -> None:
    assert field_of(ConfigError("temperature is 7"), chat()) == "temperature"
    assert field_of(ConfigError("logit_bias_of"), chat()) == "logit_bias"
    assert field_of(ConfigError("the prompt has no tokens"), chat()) is None


def test_place_in_line() -> None:
    options = options_of(chat(priority=3, cache_salt="b"), "key", "a")
    assert (options.priority, options.key, options.salt) == (3, "key", "ab")


@pytest.mark.parametrize(("given", "kept"), [(None, True), (True, True), (False, False)])
def test_what_was_read_stays_on_the_disk_unless_refused(given: bool | None, kept: bool) -> None:
    assert options_of(chat(store=given), "", "").store is kept
