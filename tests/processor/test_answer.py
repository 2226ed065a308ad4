from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstword.engine.outputs import RequestMetrics, SequenceOutput, TextDelta
from firstword.kvcache.sources import CacheMiss
from firstword.processor.answer import Answer, with_output
from firstword.processor.prompt import EncodedPrompt
from firstword.sampling.params import SamplingParams
from firstword.text.tokenizer import Tokenizer
from firstword.weights.checkpoint import open_checkpoint
from tests.weights.tiny_gguf import write_tiny_llama

METRICS = RequestMetrics(0.5, 1.5, 0, 9, 0, 128, queue_seconds=0.2)
PROMPT = EncodedPrompt((1, 2), "Hi", 2)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = write_tiny_llama(tmp_path_factory.mktemp("tiny") / "model.gguf")
    return Tokenizer.from_gguf(open_checkpoint(path).tokenizer_metadata, str(path))


def token(token_id: int, index: int = 0, finish_reason: str | None = None) -> SequenceOutput:
    return SequenceOutput(
        "it",
        index,
        token_id,
        -1.0,
        (),
        finish_reason,
        None,
        probability=0.25,
        ended_by_token=finish_reason == "stop",
    )


def answer_of(
    tokenizer: Tokenizer, params: SamplingParams, stopped: list[tuple[int, str]] | None = None
) -> Answer:
    def stop_at(index: int, stop_string: str) -> None:
        if stopped is not None:
            stopped.append((index, stop_string))

    return Answer("it", PROMPT, params, tokenizer, stop_at)


def push(answer: Answer, tokenizer: Tokenizer, text: str, index: int = 0) -> list[TextDelta]:
    deltas = [answer.advance(token(i, index)) for i in tokenizer.encode(text)]
    return [delta for delta in deltas if delta is not None]


def test_pieces_join_to_the_text(tokenizer: Tokenizer) -> None:
    answer = answer_of(tokenizer, SamplingParams(seed=1))
    text = "fünf 词 \U0001f600 words"
    deltas = push(answer, tokenizer, text)
    last = answer.advance(token(tokenizer.encode("!")[0], finish_reason="length"))
    assert last is not None
    assert "".join(d.text for d in [*deltas, last]) == text + "!"
    assert answer.is_finished
    output = answer.output(METRICS)
    assert output.text == text + "!"
    assert output.num_output_tokens == answer.num_output_tokens
    assert with_output(last, output).output is output


def test_a_stop_string_is_told_once_and_later_tokens_say_nothing(tokenizer: Tokenizer) -> None:
    stopped: list[tuple[int, str]] = []
    answer = answer_of(tokenizer, SamplingParams(seed=1, stop=("END",)), stopped)
    deltas = push(answer, tokenizer, "some wordsEND and more")
    assert "".join(d.text for d in deltas) == "some words"
    assert stopped == [(0, "END")]
    assert deltas[-1].finish_reason == "stop"
    assert answer.advance(token(5)) is None
    assert answer.output(METRICS).outputs[0].stop_reason == "END"


def test_samples_end_one_by_one(tokenizer: Tokenizer) -> None:
    answer = answer_of(tokenizer, SamplingParams(seed=1, n=2))
    push(answer, tokenizer, "one", 0)
    push(answer, tokenizer, "two", 1)
    answer.advance(token(5, 0, "stop"))
    assert not answer.is_finished
    answer.advance(token(5, 1, "stop"))
    assert answer.is_finished
    assert [o.text for o in answer.output(METRICS).outputs] == ["one", "two"]


def test_an_answer_cut_short_counts_what_there_is(tokenizer: Tokenizer) -> None:
    answer = answer_of(tokenizer, SamplingParams(seed=1))
    push(answer, tokenizer, "some")
    output = answer.output(METRICS).outputs[0]
    assert (output.text, output.finish_reason) == ("some", "abort")


def test_logprobs_carry_both_probabilities(tokenizer: Tokenizer) -> None:
    answer = answer_of(tokenizer, SamplingParams(seed=1, logprobs=0))
    delta = answer.advance(token(7))
    assert delta is not None
    assert [(t.token_id, t.logprob, t.probability) for t in delta.logprobs] == [(7, -1.0, 0.25)]
    assert answer.output(METRICS).outputs[0].logprobs == delta.logprobs


def test_a_miss_is_told_with_its_texts(tokenizer: Tokenizer) -> None:
    assert answer_of(tokenizer, SamplingParams(seed=1)).output(METRICS).cache_miss is None
    now, cached = (tuple(tokenizer.encode(text)) for text in (" 词 now", " 词 then"))
    before = tuple(tokenizer.encode("It is"))
    prompt = EncodedPrompt((*before, *now), "It is 词 now", 2)
    answer = Answer("it", prompt, SamplingParams(seed=1), tokenizer, lambda *_: None)
    miss = CacheMiss("different_text", len(before), len(now), now, cached)
    told = answer.output(replace(METRICS, miss=miss)).cache_miss
    assert told is not None
    assert (told.text, told.cached_text) == (" 词 now", " 词 then")
    assert "It is".endswith(told.before) and told.before


def test_times_of_a_request_add_up() -> None:
    assert METRICS.prefill_seconds == pytest.approx(0.3)
