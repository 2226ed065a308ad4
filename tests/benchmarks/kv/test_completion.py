from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kv.completion import Answer, Usage, Words, body, complete
from benchmarks.make_model import SHAPES, write_model
from benchmarks.vocabulary import byte_level
from firstword.bench.serving.http import Address, RequestFailedError
from tests.bench.serving import scripted_server as scripted

COUNTS = {"prompt_tokens": 10, "completion_tokens": 3}
SOURCES = {"memory": 4, "disk": 2, "neighbour": 0}


def details(**fields: object) -> dict[str, object]:
    return {**COUNTS, "prompt_tokens_details": {"cached_tokens": 6, **fields}}


def test_the_usage_of_a_server_that_tells_all() -> None:
    miss = {"cause": "different_text", "position": 6}
    told = details(cached_tokens_by_source=SOURCES, computed_tokens=4, cache_miss=miss)
    usage = Usage.of(told)
    assert (usage.prompt, usage.cached, usage.completion) == (10, 6, 3)
    assert usage.positions == 4 + 2, "the last token of an answer needs no computation"
    assert usage.adds_up and usage.miss == miss


@pytest.mark.parametrize(
    ("sources", "computed"), [({"memory": 4, "disk": 1}, 4), (SOURCES, 5), (SOURCES, None)]
)
def test_sources_that_do_not_add_up(sources: dict[str, int], computed: int | None) -> None:
    told = details(cached_tokens_by_source=sources, computed_tokens=computed)
    assert not Usage.of(told).adds_up


def test_the_usage_of_a_server_that_tells_little() -> None:
    assert Usage.of(COUNTS) == Usage(10, 0, 3)
    with pytest.raises(RequestFailedError, match="no number of tokens"):
        Usage.of({**COUNTS, "prompt_tokens": None})


def test_words_are_those_of_one_token(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, SHAPES["tiny"], "Q8_0", byte_level(1024))
    words = Words.of(path)
    assert words.begin == (1024 - 256,)
    assert "time" not in words.by_text, "this vocabulary has short words only"


def test_an_answer_of_words_is_token_ids() -> None:
    words = Words({"time": 3, "year": 9}, (1,))
    assert words.ids == (3, 9) and words.bias == {"3": 100.0, "9": 100.0}
    assert words.encode(" time year time") == [3, 9, 3]
    with pytest.raises(KeyError):
        words.encode("timeyear")


def event(fields: dict[str, object]) -> bytes:
    return scripted.chunk(scripted.event(fields))


def answered(script: scripted.Script) -> Answer:
    with scripted.ScriptedServer(script) as server:
        address = Address.parse(server.url.removesuffix("/v1"))
        answer = asyncio.run(complete(address, body([1, 2], 3, seed=5)))
        (request,) = server.requests
    assert (request.path, request.body["prompt"]) == ("/v1/completions", [1, 2])
    assert request.body["max_tokens"] == 3 and request.body["seed"] == 5
    assert request.body["temperature"] == 0 and request.body["stream"] is True
    return answer


def test_text_times_usage_and_log_probabilities_are_gathered() -> None:
    def script(request: scripted.Request) -> Iterator[bytes | float]:
        yield scripted.STREAM_HEAD
        for text, logprob in ((" time", -0.5), ("", None), (" year", -0.25)):
            logprobs = {"token_logprobs": [logprob]} if logprob else None
            yield event({"choices": [{"text": text, "logprobs": logprobs}]})
            yield 0.02
        yield event({"choices": [], "usage": details()})
        yield scripted.chunk(b"data: [DONE]\n\n")
        yield scripted.chunk(b"")

    answer = answered(script)
    assert answer.text == " time year" and answer.logprobs == (-0.5, -0.25)
    assert answer.usage == Usage(10, 6, 3)
    assert answer.seconds - answer.ttft >= 0.04


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"error": {"message": "no room"}}, "no room"), ({"choices": []}, "no text, or no usage")],
)
def test_what_is_no_answer_is_an_error(fields: dict[str, object], error: str) -> None:
    def script(request: scripted.Request) -> Iterator[bytes]:
        yield scripted.STREAM_HEAD + event(fields) + scripted.chunk(b"")

    with pytest.raises(RequestFailedError, match=error):
        answered(script)


def test_a_refusal_is_an_error() -> None:
    def script(request: scripted.Request) -> Iterator[bytes]:
        yield scripted.json_reply({"error": "too long"}, "400 Bad Request")

    with pytest.raises(RequestFailedError, match=r"HTTP 400.*too long"):
        answered(script)
