"""Choices of several prompts are numbered prompt by prompt."""

from __future__ import annotations

import json

from firstword.kvcache.sources import PromptSources
from firstword.sampling.params import SamplingParams
from firstword.server.events import Delta, SampleEnd, Started, Usage
from firstword.server.openai.completion_answer import CompletionAnswer, CompletionChunks
from firstword.server.openai.envelope import Envelope, StreamForm
from firstword.text.pieces import ContentPiece
from tests.server.fake_llm import byte_tokenizer

ENVELOPE = Envelope("cmpl", "text_completion", "text_completion", "m", "f")
EVENTS = (
    (1, Started(Usage(3), SamplingParams(n=2))),
    (1, Delta(1, (ContentPiece("a"),), (), Usage(3, PromptSources(), 1))),
    (1, SampleEnd(1, "length", None, Usage(3, PromptSources(), 2))),
)


def test_chunks_have_the_number_of_their_choice() -> None:
    chunks = CompletionChunks(ENVELOPE, StreamForm(), byte_tokenizer(), 2, 2)
    data = [chunks.write(prompt, event) for prompt, event in EVENTS]
    assert data[0] == b""
    choices = [json.loads(one.removeprefix(b"data: "))["choices"][0] for one in data[1:]]
    assert choices == [
        {"index": 3, "text": "a", "logprobs": None, "finish_reason": None},
        {"index": 3, "text": "", "logprobs": None, "finish_reason": "length"},
    ]
    assert chunks.finish() == b""


def test_last_chunk_sums_the_usage() -> None:
    form = StreamForm(include_usage=True)
    chunks = CompletionChunks(ENVELOPE, form, byte_tokenizer(), 2, 2)
    for prompt, event in EVENTS:
        chunks.write(prompt, event)
    chunks.write(0, Started(Usage(2), SamplingParams()))
    usage = json.loads(chunks.finish().removeprefix(b"data: "))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 2)


def test_answer_gathers_by_choice() -> None:
    answer = CompletionAnswer(ENVELOPE, byte_tokenizer(), 2, 2)
    for prompt, event in EVENTS:
        answer.add(prompt, event)
    choices = json.loads(answer.json())["choices"]
    assert [choice["text"] for choice in choices] == ["", "", "", "a"]
    assert choices[3]["finish_reason"] == "length"
