from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstword.batch import StepInput, StepResult
from firstword.engine.engine import Engine
from firstword.engine.outputs import RequestOutput, TextDelta
from firstword.errors import SamplingError
from firstword.processor.processor import Processor
from firstword.sampling.params import SamplingParams
from firstword.text.tokenizer import Tokenizer
from tests.cli.conftest import CHATML
from tests.harness import Model
from tests.weights.tiny_gguf import write_tiny_llama


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("tiny") / "model.gguf"
    return Model(write_tiny_llama(path, chat_template=CHATML), numerics="blas")


@pytest.fixture(scope="module")
def tokenizer(model: Model) -> Tokenizer:
    return Tokenizer.from_gguf(model.checkpoint.tokenizer_metadata, str(model.path))


@pytest.fixture
def processor(model: Model, tokenizer: Tokenizer) -> Processor:
    engine = model.engine(eos=tokenizer.eos_ids)
    return Processor(engine, tokenizer, "tiny")


def run(
    processor: Processor, prompt: str, params: SamplingParams
) -> tuple[list[TextDelta], RequestOutput]:
    processor.submit("it", processor.encode(prompt), params)
    deltas: list[TextDelta] = []
    while processor.has_work:
        deltas += processor.step()
    output = deltas[-1].output
    assert output is not None
    return deltas, output


def test_deltas_join_to_the_text_and_the_last_carries_all(processor: Processor) -> None:
    deltas, output = run(processor, "Hello", SamplingParams(seed=1, max_tokens=40))
    assert "".join(d.text for d in deltas) == output.text
    assert [d.output is not None for d in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[-1].finish_reason == output.outputs[0].finish_reason
    ids = [t for d in deltas for t in d.token_ids]
    assert tuple(ids) == output.outputs[0].token_ids


@given(
    seed=st.integers(0, 40),
    start=st.integers(0, 30),
    length=st.integers(1, 6),
    other=st.text("aeiou \n", min_size=1, max_size=3),
)
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_stop_strings_cut_the_text_wherever_they_fall(
    processor: Processor, seed: int, start: int, length: int, other: str
) -> None:
    params = SamplingParams(seed=seed, max_tokens=32, ignore_eos=True)
    _, whole = run(processor, "Hello", params)
    stop = whole.text[start : start + length] or other
    stops = (other, stop)
    cut_params = SamplingParams(seed=seed, max_tokens=32, ignore_eos=True, stop=stops)
    deltas, cut = run(processor, "Hello", cut_params)
    places = [whole.text.find(s) for s in stops if s in whole.text]
    expected = whole.text[: min(places)] if places else whole.text
    assert cut.text == expected
    assert "".join(d.text for d in deltas) == expected
    for delta in deltas:
        delta.text.encode("utf-8")  # no lone surrogates
    finish = cut.outputs[0]
    if places:
        assert finish.finish_reason == "stop"
        assert finish.stop_reason in stops
    else:
        assert (finish.finish_reason, finish.stop_reason) == ("length", None)


def test_the_models_own_end_is_no_text_and_no_stop_reason(
    model: Model, tokenizer: Tokenizer
) -> None:
    params = SamplingParams(seed=1, max_tokens=20)
    _, free = run(Processor(model.engine(), tokenizer, "tiny"), "Hello", params)
    end = free.outputs[0].token_ids[5]
    processor = Processor(model.engine(eos=frozenset({end})), tokenizer, "tiny")
    _, output = run(processor, "Hello", params)
    answer = output.outputs[0]
    assert answer.finish_reason == "stop"
    assert answer.stop_reason is None
    first = free.outputs[0].token_ids.index(end)
    assert answer.token_ids == free.outputs[0].token_ids[: first + 1]
    assert answer.text == tokenizer.decode(answer.token_ids[:-1], keep_leading_space=True)


def test_a_stop_token_is_named(model: Model, tokenizer: Tokenizer) -> None:
    processor = Processor(model.engine(), tokenizer, "tiny")
    _, free = run(processor, "Hello", SamplingParams(seed=1, max_tokens=20))
    stop = free.outputs[0].token_ids[4]
    params = SamplingParams(seed=1, max_tokens=20, stop_token_ids=(stop,))
    _, output = run(processor, "Hello", params)
    assert output.outputs[0].stop_reason == stop


def test_samples_are_told_apart(processor: Processor) -> None:
    deltas, output = run(processor, "Hello", SamplingParams(n=3, seed=1, max_tokens=10))
    assert [o.index for o in output.outputs] == [0, 1, 2]
    assert len({o.text for o in output.outputs}) > 1
    for sample in output.outputs:
        assert "".join(d.text for d in deltas if d.index == sample.index) == sample.text


def test_logprobs_come_when_asked_for(processor: Processor) -> None:
    _, output = run(processor, "Hello", SamplingParams(seed=1, max_tokens=4, logprobs=3))
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None
    assert [entry.token_id for entry in logprobs] == list(output.outputs[0].token_ids)
    assert all(len(entry.candidates) == 3 for entry in logprobs)
    assert all(entry.logprob <= 0 for entry in logprobs)


def test_aborting_gives_everything_back_and_unknown_ids_are_ignored(processor: Processor) -> None:
    free = processor.engine.kv.num_free_blocks
    processor.submit("it", processor.encode("Hello"), SamplingParams(max_tokens=50))
    processor.step()
    processor.abort("it")
    processor.abort("it")
    assert not processor.has_work
    assert processor.engine.kv.num_free_blocks == free
    processor.submit("it", processor.encode("Hello"), SamplingParams(max_tokens=1))


class _FailingRunner:
    """Lets one row fail, as a broken model would."""

    def __init__(self, engine: Engine) -> None:
        self.inner = engine.runner

    def submit(self, step: StepInput) -> int:
        return self.inner.submit(step)

    runs_ahead = False

    def stop(self) -> None:
        self.inner.stop()

    def drop(self) -> None:
        self.inner.drop()

    def collect(self, handle: int) -> StepResult:
        result = self.inner.collect(handle)
        broken: tuple[object, ...] = (SamplingError("no finite logit"), *result.sampled[1:])
        return StepResult(broken)  # type: ignore[arg-type]


def test_a_row_that_fails_ends_its_own_request_only(processor: Processor) -> None:
    processor.submit("bad", processor.encode("Hello"), SamplingParams(seed=1, max_tokens=5))
    processor.submit("good", processor.encode("World"), SamplingParams(seed=1, max_tokens=5))
    inner = processor.engine.runner
    processor.engine.runner = _FailingRunner(processor.engine)
    deltas = processor.step()
    processor.engine.runner = inner
    errors = [d for d in deltas if d.error is not None]
    assert [d.request_id for d in errors] == ["bad"]
    while processor.has_work:
        deltas += processor.step()
    finished = [d.output for d in deltas if d.output is not None]
    assert [o.request_id for o in finished] == ["good"]
    assert len(finished[0].outputs[0].token_ids) == 5


def test_arrival_is_when_encoding_began(processor: Processor) -> None:
    prompt = processor.encode("Hello")
    assert prompt.seconds >= 0
    _, output = run(processor, "Hello", SamplingParams(seed=1, max_tokens=2))
    assert output.metrics.ttft is not None
    assert output.metrics.e2e >= output.metrics.ttft > 0
    assert np.isfinite(output.metrics.e2e)
