from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from firstword.batch import (
    Float32Array,
    ForwardBatch,
    SampledToken,
    SamplingRow,
    StepInput,
    StepResult,
)
from firstword.engine.runner import ReferenceRunner, resolve_token_ids
from firstword.errors import SamplingError
from firstword.kvcache.storage import PagedStorage
from tests.harness import Model
from tests.ops.builders import Chunk, make_batch, one_group
from tests.weights.tiny_gguf import write_tiny_llama

VOCAB = 8
POOL = PagedStorage(one_group(1, 2), 2)
GREEDY = SamplingRow(temperature=0)


def successor(batch: ForwardBatch, kv: Any) -> Float32Array:
    """The next token is the last one + 1; token 7 gives a row without finite logits."""
    logits = np.full((len(batch.logits_indices), VOCAB), -5.0, np.float32)
    for row, token in zip(logits, batch.token_ids[batch.logits_indices], strict=True):
        if token == VOCAB - 1:
            row[:] = np.nan
        else:
            row[token + 1] = 5.0
    return logits


def step_of(*token_ids: int) -> StepInput:
    """One sequence per token, each in need of its next one."""
    batch = make_batch(*(Chunk((0,), 0, 1) for _ in token_ids))
    batch = replace(batch, token_ids=np.array(token_ids, np.int32))
    return StepInput(batch, (GREEDY,) * len(token_ids))


def ids(result: StepResult) -> list[int]:
    return [token.token_id for token in result.sampled if isinstance(token, SampledToken)]


def token(token_id: int) -> SampledToken:
    return SampledToken(token_id, 0.0, 1.0, 1)


def test_a_step_gives_one_token_per_row_and_its_times() -> None:
    runner = ReferenceRunner(successor, POOL)
    result = runner.collect(runner.submit(step_of(3, 0)))
    assert ids(result) == [4, 1]
    assert result.forward_ms > 0
    assert result.sampling_ms > 0


def test_steps_may_be_collected_late_and_only_once() -> None:
    runner = ReferenceRunner(successor, POOL)
    first, second = runner.submit(step_of(1)), runner.submit(step_of(5))
    assert first != second
    assert ids(runner.collect(second)) == [6]
    assert ids(runner.collect(first)) == [2]
    with pytest.raises(KeyError):
        runner.collect(first)


def test_a_row_that_fails_leaves_the_others_their_tokens() -> None:
    runner = ReferenceRunner(successor, POOL)
    sampled = runner.collect(runner.submit(step_of(2, VOCAB - 1, 4))).sampled
    assert isinstance(sampled[1], SamplingError)
    assert "no finite logit" in str(sampled[1])
    assert [t.token_id for t in (sampled[0], sampled[2]) if isinstance(t, SampledToken)] == [3, 5]


def test_a_step_can_be_prepared_before_its_tokens_are_known() -> None:
    """Token -(row + 1) is what row `row` of the step before gave."""
    runner = ReferenceRunner(successor, POOL)
    runner.submit(step_of(1, 4))
    assert ids(runner.collect(runner.submit(step_of(-2, -1, 0)))) == [6, 3, 1]
    assert ids(runner.collect(runner.submit(step_of(-3)))) == [2]


def test_known_tokens_are_left_alone() -> None:
    step = step_of(1, 2)
    assert resolve_token_ids(step, None) is step
    assert resolve_token_ids(step, StepResult((token(5),))) is step


def test_resolving_does_not_write_to_the_step() -> None:
    step = step_of(-1, 3)
    resolved = resolve_token_ids(step, StepResult((token(6),)))
    assert resolved.batch.token_ids.tolist() == [6, 3]
    assert step.batch.token_ids.tolist() == [-1, 3]
    assert resolved.sampling == step.sampling


def test_there_must_be_a_step_before() -> None:
    with pytest.raises(ValueError, match="none"):
        resolve_token_ids(step_of(-1), None)


def test_no_sequence_goes_on_from_a_row_that_failed() -> None:
    with pytest.raises(AssertionError, match="went on"):
        resolve_token_ids(step_of(-1), StepResult((SamplingError("x"),)))


@dataclass
class FailsOnce:
    failed: bool = False

    def __call__(self, batch: ForwardBatch, kv: Any) -> Float32Array:
        if not self.failed:
            self.failed = True
            raise KeyboardInterrupt
        return successor(batch, kv)


def test_an_interrupted_step_leaves_nothing_behind() -> None:
    runner = ReferenceRunner(FailsOnce(), POOL)
    with pytest.raises(KeyboardInterrupt):
        runner.submit(step_of(1))
    assert ids(runner.collect(runner.submit(step_of(1)))) == [2]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(write_tiny_llama(tmp_path_factory.mktemp("runner") / "m.gguf"), "native")


def two_sequences(*token_ids: int) -> StepInput:
    batch = make_batch(Chunk((0,), 0, 1), Chunk((1,), 0, 1))
    return StepInput(replace(batch, token_ids=np.array(token_ids, np.int32)), (GREEDY, GREEDY))


def test_the_native_runner_samples_what_its_model_computes(native: Model) -> None:
    runner, step = native.runner(4), two_sequences(5, 9)
    result = runner.collect(runner.submit(step))
    logits = native.network(step.batch, native.ops.new_kv_pool(native.spec, 4))
    assert ids(result) == logits.argmax(axis=1).tolist()
    assert result.forward_ms > 0
    assert result.sampling_ms > 0
    assert result.native_ms is not None
    assert 0 < result.native_ms < result.forward_ms + result.sampling_ms


def test_the_native_runner_knows_the_tokens_of_the_step_before(native: Model) -> None:
    runner = native.runner(4)
    first = ids(runner.collect(runner.submit(two_sequences(5, 9))))
    by_name = ids(runner.collect(runner.submit(two_sequences(*first))))
    runner.collect(runner.submit(two_sequences(5, 9)))
    handle = runner.submit(two_sequences(-1, -2))
    assert ids(runner.collect(handle)) == by_name
    with pytest.raises(IndexError):
        runner.collect(handle)


def test_samples_of_one_row_share_its_logits(native: Model) -> None:
    step = two_sequences(5, 9)
    rows = np.array([0, 1, 1, 1], np.int32)
    sampling = tuple(SamplingRow(temperature=1, seed=3, sample_index=i) for i in range(4))
    several = StepInput(replace(step.batch, logits_indices=rows), sampling)
    runner = native.runner(4)
    result = runner.collect(runner.submit(several))
    assert len(result.sampled) == 4
    assert len(set(ids(result)[1:])) > 1
