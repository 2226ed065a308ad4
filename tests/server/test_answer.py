"""Deltas become events, in order, with the right counts."""

from __future__ import annotations

import pytest

from firstword.engine.outputs import PromptProgress, TextDelta
from firstword.errors import SamplingError
from firstword.kvcache.sources import PromptSources
from firstword.processor.prompt import EncodedPrompt
from firstword.sampling.params import SamplingParams
from firstword.server.answer import Answer
from firstword.server.events import Delta, Progress, SampleEnd, Started, Usage
from firstword.text.pieces import ContentPiece

PARAMS = SamplingParams(n=2)


def new_answer() -> Answer:
    return Answer(EncodedPrompt((1, 2, 3), "abc", 3), PARAMS, lambda: None)


def test_progress_comes_before_the_start() -> None:
    answer = new_answer()
    progress = PromptProgress(3, PromptSources(2), 2, 0, 0.0)
    assert list(answer.push(TextDelta("r", 0, "", (), progress=progress))) == [Progress(progress)]
    events = list(answer.push(TextDelta("r", 0, "a", (7,))))
    assert events == [
        Started(Usage(prompt=3, sources=PromptSources(2)), PARAMS),
        Delta(0, (ContentPiece("a"),), (), Usage(3, PromptSources(2), 1, 0)),
    ]


def test_tokens_without_text_are_counted_and_silent() -> None:
    answer = new_answer()
    list(answer.push(TextDelta("r", 0, "a", (7,))))
    assert list(answer.push(TextDelta("r", 1, "", (8, 9)))) == []
    assert answer.usage == Usage(3, PromptSources(), 3, 0)


def test_stop_strings_are_told_of_each_sample() -> None:
    answer = new_answer()
    list(answer.push(TextDelta("r", 0, "a", (7,))))
    reasons: list[str | int] = ["END", 5]
    ends = [
        list(answer.push(TextDelta("r", i, "", (7,), finish_reason="stop", stop_reason=reason)))
        for i, reason in enumerate(reasons)
    ]
    assert ends == [
        [SampleEnd(0, "stop", "END", Usage(3, PromptSources(), 2, 0))],
        [SampleEnd(1, "stop", None, Usage(3, PromptSources(), 3, 0))],
    ]


def test_error_of_a_delta_is_raised() -> None:
    with pytest.raises(SamplingError):
        list(new_answer().push(TextDelta("r", 0, "", (), error=SamplingError("no token"))))
