from __future__ import annotations

from pathlib import Path

import pytest

from firstword.engine.messages import Accepted, Command, Finished, Progressed, Refused, StepMessage
from firstword.engine.messages import Stop as StopCommand
from firstword.engine.outputs import (
    PromptProgress,
    RequestMetrics,
    RequestOutput,
    SequenceOutput,
    TextDelta,
)
from firstword.errors import CapacityError, EngineDiedError, FirstwordError
from firstword.kvcache.sources import PromptSources
from firstword.processor.flows import Flow, Flows
from firstword.processor.prompt import EncodedPrompt
from firstword.sampling.params import SamplingParams
from firstword.text.tokenizer import Tokenizer
from firstword.weights.checkpoint import open_checkpoint
from tests.weights.tiny_gguf import write_tiny_llama

METRICS = RequestMetrics(0.5, 1.5, 0, 9, 0, 128)
PROMPT = EncodedPrompt((1, 2), "Hi", 2, seconds=0.25)
PARAMS = SamplingParams(seed=1, stop=("END",))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path: Path = write_tiny_llama(tmp_path_factory.mktemp("tiny") / "model.gguf")
    return Tokenizer.from_gguf(open_checkpoint(path).tokenizer_metadata, str(path))


class Bench:
    """Flows of two requests, one of them accepted, and what went to the engine."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.sent: list[Command] = []
        self.flows = Flows(self.sent.append)
        self.flow, self.other = Flow(PROMPT, tokenizer), Flow(PROMPT, tokenizer)
        self.flows.open("it", self.flow)
        self.flows.open("other", self.other)
        message = StepMessage.empty()
        message.replies.append(Accepted("it", PARAMS, 3))
        self.flows.take(message)
        taken(self.flow)

    def take(self, text: str = "", finish_reason: str | None = None, ends: bool = False) -> bool:
        """A step that gives tokens of `text`, the last of them with `finish_reason`."""
        message, token_ids = StepMessage.empty(), self.tokenizer.encode(text)
        for i, token_id in enumerate(token_ids):
            reason = finish_reason if i == len(token_ids) - 1 else None
            message.outputs.append(SequenceOutput("it", 0, token_id, -1.0, (), reason, None))
        if ends:
            message.finished.append(Finished("it", METRICS))
        return self.flows.take(message)


@pytest.fixture
def bench(tokenizer: Tokenizer) -> Bench:
    return Bench(tokenizer)


def taken(flow: Flow) -> list[TextDelta | FirstwordError]:
    """What has come for a flow, taken off it."""
    return [flow.pieces.get_nowait() for _ in range(flow.pieces.qsize())]


def texts(flow: Flow) -> str:
    return "".join(piece.text for piece in taken(flow) if isinstance(piece, TextDelta))


def test_who_is_accepted_is_told_how_many_wait_before_it(tokenizer: Tokenizer) -> None:
    flows, flow = Flows(lambda command: None), Flow(PROMPT, tokenizer)
    flows.open("it", flow)
    message = StepMessage.empty()
    message.replies.append(Accepted("it", PARAMS, 3))
    flows.take(message)
    [piece] = taken(flow)
    assert isinstance(piece, TextDelta)
    assert piece.progress == PromptProgress(2, PromptSources(), 0, 3, 0.25)


def test_text_and_progress_go_to_whom_they_are_for(bench: Bench) -> None:
    assert not bench.take("some words")
    message = StepMessage.empty()
    progress = PromptProgress(2, PromptSources(), 1, 0, 0.5)
    message.progress.extend([Progressed("it", progress), Progressed("unknown", progress)])
    bench.flows.take(message)
    *words, last = taken(bench.flow)
    assert "".join(w.text for w in words if isinstance(w, TextDelta)) == "some words"
    assert isinstance(last, TextDelta)
    assert last.progress == progress
    assert taken(bench.other) == []


def test_the_last_piece_carries_the_whole_answer(bench: Bench) -> None:
    assert bench.take("all of it", "length", ends=True)
    last = taken(bench.flow)[-1]
    assert isinstance(last, TextDelta)
    assert isinstance(last.output, RequestOutput)
    assert (last.finish_reason, last.output.text) == ("length", "all of it")
    assert last.output.metrics is METRICS
    assert bench.flow.is_over
    assert not bench.other.is_over


def test_a_stop_string_is_sent_to_the_engine_and_nothing_waits_for_the_metrics(
    bench: Bench,
) -> None:
    assert not bench.take("words END more")
    assert bench.sent == [StopCommand("it", 0, "END")]
    assert texts(bench.flow) == "words "
    assert not bench.flow.is_over
    assert bench.take("late", ends=True)
    [last] = taken(bench.flow)
    assert isinstance(last, TextDelta)
    assert last.output is not None
    assert (last.text, last.output.text) == ("", "words ")


def test_who_is_refused_gets_the_error(bench: Bench) -> None:
    error = CapacityError("it does not fit")
    message = StepMessage.empty()
    message.replies.extend([Refused("other", error), Refused("unknown", error)])
    bench.flows.take(message)
    assert taken(bench.other) == [error]
    assert bench.other.is_over
    assert not bench.flow.is_over


def test_when_the_engine_dies_all_are_told(bench: Bench) -> None:
    error = EngineDiedError("it died")
    bench.flows.fail_all(error)
    assert taken(bench.flow) == taken(bench.other) == [error]


def test_what_comes_for_one_that_was_closed_is_dropped(bench: Bench) -> None:
    assert "it" in bench.flows
    bench.flows.close("it")
    assert not bench.take("words", "length", ends=True)
    assert taken(bench.flow) == []
    assert list(bench.flows) == ["other"]
    assert len(bench.flows) == 1
