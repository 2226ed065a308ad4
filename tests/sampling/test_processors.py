from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword.batch import Float32Array, PenaltyTable
from firstword.sampling import processors

INF = np.inf
# Few distinct values, so that ties are the rule.
ROWS = st.lists(st.sampled_from([-INF, -2.0, -0.0, 0.0, 0.5, 1.0, 7.0]), min_size=1, max_size=80)


def _array(values: list[float]) -> Float32Array:
    return np.array(values, np.float32)


def test_bias_is_added_in_single_precision() -> None:
    logits = _array([1, 2, 3])
    processors.add_bias(logits, [(0, 0.1), (2, -INF), (0, 0.1)])
    assert logits.tolist() == [np.float32(1) + np.float32(0.1) + np.float32(0.1), 2, -INF]


def test_penalties_by_their_definition() -> None:
    logits = _array([2, -2, 0, 5, -INF, 1])
    table = PenaltyTable(
        np.array([3, 0, 1, 2, 4], np.int32), np.array([1, 2, 3, 1, 9], np.int32), 2.0, 0.25, 0.5
    )
    processors.penalize(logits, table)
    assert logits.tolist() == [1 - 0.5 - 0.5, -4 - 0.75 - 0.5, -0.75, 2.5 - 0.75, -INF, 1]


def test_penalties_never_leave_a_number_that_is_none() -> None:
    logits = _array([3e38, -3e38, 0, -INF])
    ids = np.arange(4, dtype=np.int32)
    processors.penalize(logits, PenaltyTable(ids, np.ones(4, np.int32), 1e-300, -2.0, -2.0))
    assert not np.isnan(logits).any()
    assert logits[0] == np.finfo(np.float32).max
    assert logits[3] == -INF


def test_bans() -> None:
    logits = _array([1, 2, 3])
    processors.ban_tokens(logits, [0, 2, 2])
    assert logits.tolist() == [-INF, 2, -INF]


def test_non_finite_logits_are_out() -> None:
    logits = _array([np.nan, 1, INF, -INF])
    processors.drop_non_finite(logits)
    assert logits.tolist() == [-INF, 1, -INF, -INF]


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
def test_allowed_tokens_are_bits_of_words(size: int) -> None:
    allowed_ids = {i for i in range(size) if i % 3 == 0 or i == 31}
    words = [
        sum(1 << bit for bit in range(32) if word * 32 + bit in allowed_ids)
        for word in range(-(-size // 32))
    ]
    logits = np.zeros(size, np.float32)
    processors.keep_allowed(logits, np.array(words, np.uint32))
    assert set(np.flatnonzero(logits == 0).tolist()) == allowed_ids


@settings(deadline=None)  # a busy machine is no failure
@given(ROWS, st.integers(1, 90))
def test_top_ids_and_order_with_ties(row: list[float], k: int) -> None:
    ranked = sorted(range(len(row)), key=lambda i: (-row[i], i))
    ids = processors.top_ids(_array(row), k)
    assert ids.tolist() == sorted(ranked[:k])
    assert processors.best_first(_array(row), ids).tolist() == ranked[:k]


@settings(deadline=None)  # a busy machine is no failure
@given(ROWS, st.integers(0, 90))
def test_top_k(row: list[float], k: int) -> None:
    ranked = sorted(range(len(row)), key=lambda i: (-row[i], i))
    kept = set(ranked[:k] if k else ranked)
    logits = _array(row)
    processors.keep_top_k(logits, k)
    assert logits.tolist() == [x if i in kept else -INF for i, x in enumerate(row)]


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]), min_size=1, max_size=600),
    st.sampled_from([1e-9, 0.25, 0.5, 0.75, 0.95, 1.0]),
)
def test_top_p(weights: list[float], p: float) -> None:
    weights[0] = 1.0  # the largest logit always has weight 1; sums of these weights are exact
    kept, mass = set(), 0.0
    for i in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        if mass >= p * sum(weights):
            break
        kept.add(i)
        mass += weights[i]
    row = _array(weights)
    processors.keep_top_p(row, p)
    assert row.tolist() == [w if i in kept else 0 for i, w in enumerate(weights)]


@pytest.mark.parametrize("p", [0.001, 0.3, 0.5, 0.9, 0.999, 1 - 2**-53])
@pytest.mark.parametrize("spread", [0.0, 0.01, 3.0])
def test_top_p_over_many_tokens(p: float, spread: float) -> None:
    noise = np.random.default_rng(1).standard_normal(20_000) * spread
    weights = np.exp(noise - noise.max()).astype(np.float32)
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    row = weights.copy()
    processors.keep_top_p(row, p)
    count = int(np.count_nonzero(row))
    assert set(np.flatnonzero(row).tolist()) == set(order[:count])
    exact = np.cumsum(weights[order].astype(np.float64)) / weights.astype(np.float64).sum()
    assert exact[count - 1] >= p - 1e-12
    assert count == 1 or exact[count - 2] < p + 1e-12
