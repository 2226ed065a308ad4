"""The compiled sampler through its binding; tests/native/test_sample.py tests the kernel itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firstword.batch import Float32Array, PenaltyTable, SampledToken, SamplingRow
from firstword.ops.native import NativeOps
from firstword.sampling.native import NativeSampler
from firstword.sampling.sampler import sample_each

VOCAB = 5000
ROW = SamplingRow(temperature=0.8, top_k=40, top_p=0.9, seed=2**63 + 5, position=7, sample_index=3)
ROWS = [
    ROW,
    replace(ROW, temperature=0),
    replace(ROW, top_k=0, num_top_logprobs=5),
    replace(ROW, top_p=1.0, top_k=0, temperature=1.0, want_logits=True),
    replace(ROW, banned_token_ids=(0, 17), logit_bias=((3, 2.5), (99, -np.inf))),
    replace(
        ROW,
        penalties=PenaltyTable(
            np.arange(0, VOCAB, 3, dtype=np.int32), np.arange(1, VOCAB, 3, dtype=np.int32), 1.2, 0.3
        ),
    ),
    replace(ROW, allowed_tokens=np.full(-(-VOCAB // 32), 0x0F0F0F0F, np.uint32)),
]
FAILING = [
    replace(ROW, banned_token_ids=(VOCAB,)),
    replace(ROW, logit_bias=((-1, 1.0),)),
    replace(ROW, penalties=PenaltyTable(np.array([VOCAB], np.int32), np.ones(1, np.int32))),
    replace(ROW, allowed_tokens=np.zeros(-(-VOCAB // 32), np.uint32)),
    replace(ROW, allowed_tokens=np.zeros(3, np.uint32)),
]


@pytest.fixture(params=[1, 3])
def sampler(request: pytest.FixtureRequest) -> NativeSampler:
    return NativeSampler(NativeOps(request.param).backend)


def logits_of(num_rows: int) -> Float32Array:
    return (3 * np.random.default_rng(5).standard_normal((num_rows, VOCAB))).astype(np.float32)


def test_tokens_are_those_of_the_python_sampler(sampler: NativeSampler) -> None:
    logits = logits_of(4)
    rows = np.array([0, 3, 3, 1, 2, 2, 0], np.int32)
    ours = sampler.sample_each(logits, rows, ROWS)
    assert ours == sample_each(logits[rows], ROWS)
    kept = ours[3]
    assert isinstance(kept, SampledToken)
    assert kept.logits is not None
    assert (kept.logits == logits[1]).all()
    assert not np.shares_memory(kept.logits, logits)


def test_one_row_needs_no_threads_and_none_no_work(sampler: NativeSampler) -> None:
    logits = logits_of(1)
    rows = np.zeros(1, np.int32)
    assert sampler.sample_each(logits, rows, [ROW]) == sample_each(logits, [ROW])
    assert sampler.sample_each(logits[:0], rows[:0], []) == ()


def test_failures_are_the_python_samplers_and_stay_with_their_rows(sampler: NativeSampler) -> None:
    logits = logits_of(2)
    logits[1] = np.nan
    rows = np.array([0, 0, 0, 0, 0, 1, 0], np.int32)
    strategies = [*FAILING, ROW, ROW]
    ours = sampler.sample_each(logits, rows, strategies)
    theirs = sample_each(logits[rows], strategies)
    assert [str(outcome) for outcome in ours[:6]] == [str(outcome) for outcome in theirs[:6]]
    assert [type(outcome) for outcome in ours] == [type(outcome) for outcome in theirs]
    assert ours[6] == theirs[6]


def test_rows_that_are_not_there_are_refused(sampler: NativeSampler) -> None:
    with pytest.raises(ValueError, match="no such row"):
        sampler.sample_each(logits_of(1), np.ones(1, np.int32), [ROW])
