from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword.batch import Float32Array, PenaltyTable, SampledToken, SamplingRow
from firstword.errors import SamplingError
from firstword.sampling.rng import MAX_SEED, uniform
from firstword.sampling.sampler import sample, sample_each, sample_row

INF = math.inf


def _oracle(logits: list[float], row: SamplingRow) -> dict[int, float]:
    """The probabilities a strategy leaves, straight from its definition, in double precision."""
    altered = list(logits)
    for token, bias in row.logit_bias:
        altered[token] += bias
    for token in row.banned_token_ids:
        altered[token] = -INF
    ranked = sorted(
        (i for i in range(len(altered)) if altered[i] > -INF), key=lambda i: (-altered[i], i)
    )
    if row.temperature == 0:
        return {ranked[0]: 1.0}
    ranked = ranked[: row.top_k] if row.top_k else ranked
    best = altered[ranked[0]]
    weights = [math.exp((altered[i] - best) / row.temperature) for i in ranked]
    mass = math.fsum(weights)
    kept = 1 + sum(done < row.top_p * mass for done in accumulate(weights[:-1]))
    kept = len(weights) if row.top_p == 1 else kept
    mass = math.fsum(weights[:kept])
    return {i: w / mass for i, w in zip(ranked[:kept], weights[:kept], strict=True)}


def _logits(size: int, spread: float = 3.0, seed: int = 0) -> Float32Array:
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


STRATEGIES = [
    SamplingRow(temperature=0),
    SamplingRow(),
    SamplingRow(temperature=0.7, top_k=40, top_p=0.95),
    SamplingRow(temperature=1.3, top_p=0.5),
    SamplingRow(temperature=100, top_k=7),
    SamplingRow(logit_bias=((3, 9.0), (4, -50.0)), banned_token_ids=(0, 1, 2), top_k=9),
]


@pytest.mark.parametrize("size", [1, 50, 4096, 10_000])
@pytest.mark.parametrize("index", range(len(STRATEGIES)))
def test_agrees_with_the_definition(size: int, index: int) -> None:
    row = STRATEGIES[index]
    if size == 1 and row.banned_token_ids:
        return
    logits = _logits(size)
    expected = _oracle([float(x) for x in logits], row)
    log_total = math.log(math.fsum(math.exp(float(x)) for x in logits))
    tokens = sorted(expected)
    ends = list(accumulate(expected[token] for token in tokens))
    for position in range(20):
        result = sample_row(logits, replace(row, position=position, seed=5))
        assert result.num_survivors == len(expected)
        assert result.probability == pytest.approx(expected[result.token_id], rel=2e-5)
        assert result.logprob == pytest.approx(float(logits[result.token_id]) - log_total, abs=1e-5)
        if row.temperature == 0:
            assert result.uniform is None
            continue
        assert result.uniform == uniform(5, position, 0)
        walked = tokens.index(result.token_id)
        assert result.uniform < ends[walked] + 1e-6
        assert walked == 0 or result.uniform >= ends[walked - 1] - 1e-6


@settings(deadline=None)  # a busy machine is no failure
@given(
    st.lists(st.sampled_from([-INF, -3.0, 0.0, 0.25, 2.0, 30.0]), min_size=1, max_size=60),
    st.sampled_from([0.0, 1e-6, 0.5, 1.0, 100.0]),
    st.integers(0, 70),
    st.sampled_from([1e-9, 0.3, 0.7, 0.99, 1.0]),
)
def test_ties_and_extremes(logits: list[float], temperature: float, k: int, p: float) -> None:
    logits[len(logits) // 2] = 1.0
    row = SamplingRow(temperature=temperature, top_k=k, top_p=p, num_top_logprobs=60)
    expected = _oracle(logits, row)
    result = sample_row(np.array(logits, np.float32), row)
    assert result.token_id in expected
    left = {c.token_id: c.probability for c in result.candidates if c.probability}
    possible = {token: prob for token, prob in expected.items() if prob > 1e-37}
    # A running sum that meets top-p exactly may round to either side: one token more or less.
    assert abs(len(left) - len(possible)) <= 1
    if left.keys() == possible.keys():
        for token, probability in left.items():
            assert probability == pytest.approx(possible[token], rel=1e-5)
    assert math.fsum(left.values()) == pytest.approx(1)


def test_greedy_ties_go_to_the_lowest_id() -> None:
    assert sample_row(np.array([1, 7, 7, 0], np.float32), SamplingRow(temperature=0)).token_id == 1


def test_temperature_zero_and_temperatures_near_it_agree() -> None:
    logits = _logits(5000)
    greedy = sample_row(logits, SamplingRow(temperature=0))
    assert (greedy.probability, greedy.num_survivors, greedy.uniform) == (1.0, 1, None)
    for temperature in (1e-6, 1e-300):
        result = sample_row(logits, SamplingRow(temperature=temperature, seed=9))
        assert (result.token_id, result.probability) == (greedy.token_id, 1.0)
    assert sample_row(logits, SamplingRow(top_p=1e-12)).token_id == greedy.token_id
    assert sample_row(logits, SamplingRow(top_k=1)).num_survivors == 1


@pytest.mark.parametrize(
    "row",
    [
        SamplingRow(temperature=1.0),
        SamplingRow(temperature=0.5, top_k=6),
        SamplingRow(temperature=2.0, top_p=0.8),
        SamplingRow(temperature=100.0),
    ],
)
def test_draws_follow_the_distribution(row: SamplingRow) -> None:
    logits = _logits(10, 1.0)
    expected = _oracle([float(x) for x in logits], row)
    draws = 3000
    counts = dict.fromkeys(expected, 0)
    for position in range(draws):
        counts[sample_row(logits, replace(row, seed=1234, position=position)).token_id] += 1
    chi_square = sum((counts[t] - draws * p) ** 2 / (draws * p) for t, p in expected.items())
    assert chi_square < 27.9  # 0.1% of fair draws exceed it with 9 degrees of freedom


def test_draws_reach_every_chunk() -> None:
    logits = np.full(3 * 4096 + 5, -INF, np.float32)
    tokens = [0, 4095, 4096, 8191, 12_287, 12_292]
    logits[tokens] = 1
    seen = {sample_row(logits, SamplingRow(position=i)).token_id for i in range(100)}
    assert seen == set(tokens)


def test_the_smallest_number_skips_tokens_without_a_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstword.sampling.sampler.uniform", lambda *_: 0.0)
    logits = np.full(3 * 4096, -INF, np.float32)
    logits[[5000, 9000]] = 0
    assert sample_row(logits, SamplingRow()).token_id == 5000


def test_a_number_lost_in_rounding_takes_the_chunks_last_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One by one the tiny weights vanish beside the 1, folded they do not; half of the total lies
    # between the two sums of the first chunk.
    monkeypatch.setattr("firstword.sampling.sampler.uniform", lambda *_: 0.5)
    logits = np.full(2 * 4096, -INF, np.float32)
    logits[0] = logits[4096] = 0
    logits[1:4000] = -38
    assert sample_row(logits, SamplingRow()).token_id == 3999


def test_same_seed_same_token_and_other_seeds_other_tokens() -> None:
    logits = _logits(1000, 0.1)
    for seed in (0, 1, 2**32 - 1, 2**32, MAX_SEED):
        row = SamplingRow(seed=seed, position=3)
        assert sample_row(logits, row) == sample_row(logits.copy(), row)
    rows = [SamplingRow(seed=s, position=p, sample_index=n)
            for s in (0, 2**32, MAX_SEED) for p in (0, 1) for n in (0, 1)]  # fmt: skip
    assert len({sample_row(logits, row).uniform for row in rows}) == len(rows)


def test_the_order_is_bias_penalties_bans_and_mask() -> None:
    ids, counts = np.array([0, 1], np.int32), np.ones(2, np.int32)
    table = PenaltyTable(ids, counts, repetition=2.0, presence=1.0)
    logits = np.array([4, 3, 2.5], np.float32)
    greedy = SamplingRow(temperature=0, penalties=table)
    assert sample_row(logits, greedy).token_id == 2
    # Halved with its bias: 4 + 8 -> 6 - 1; the bias alone added afterwards would be 2 - 1 + 8.
    low = replace(greedy, logit_bias=((0, 8.0), (2, 3.0)))
    assert sample_row(logits, low).token_id == 2
    encouraged = PenaltyTable(ids, counts, presence=-100.0)
    row = replace(greedy, penalties=encouraged, banned_token_ids=(0,))
    assert sample_row(logits, row).token_id == 1
    allowed = np.array([0b100], np.uint32)
    assert sample_row(logits, replace(row, allowed_tokens=allowed)).token_id == 2


def test_p25_a_row_does_not_depend_on_the_other_rows() -> None:
    logits = np.stack([_logits(9000, seed=i) for i in range(6)])
    rows = [replace(row, num_top_logprobs=5, seed=i) for i, row in enumerate(STRATEGIES)]
    together = sample(logits, rows)
    assert together == tuple(sample_row(x.copy(), r) for x, r in zip(logits, rows, strict=True))
    turned = sample(logits[::-1], rows[::-1])
    assert together == turned[::-1]


def test_candidates_are_the_models_and_carry_what_the_strategy_left() -> None:
    logits = np.array([2, 5, 5, 1, 4, -INF], np.float32)
    row = SamplingRow(top_k=2, num_top_logprobs=9, banned_token_ids=(1,))
    candidates = sample_row(logits, row).candidates
    assert [c.token_id for c in candidates] == [1, 2, 4, 0, 3]
    assert math.fsum(math.exp(c.logprob) for c in candidates) == pytest.approx(1, abs=1e-6)
    left = {c.token_id: c.probability for c in candidates}
    assert left[1] == left[0] == left[3] == 0
    assert left[2] == pytest.approx(1 / (1 + math.exp(-1)))
    assert left[2] + left[4] == pytest.approx(1)
    greedy = sample_row(logits, SamplingRow(temperature=0, num_top_logprobs=2)).candidates
    assert [(c.token_id, c.probability) for c in greedy] == [(1, 1.0), (2, 0.0)]


def test_allowed_tokens() -> None:
    mask = np.array([0b1000], np.uint32)
    result = sample_row(np.zeros(20, np.float32), SamplingRow(allowed_tokens=mask))
    assert (result.token_id, result.probability) == (3, 1.0)
    assert result.logprob == pytest.approx(-math.log(20))


def test_logits_come_back_unaltered_and_nothing_is_changed_in_place() -> None:
    logits = _logits(100)
    before = logits.copy()
    row = SamplingRow(top_k=3, top_p=0.5, banned_token_ids=(5,), want_logits=True)
    result = sample_row(logits, row)
    assert result.logits is not None
    assert result.logits is not logits
    np.testing.assert_array_equal(result.logits, before)
    np.testing.assert_array_equal(logits, before)


def test_nan_and_infinity_count_as_minus_infinity() -> None:
    logits = np.array([math.nan, 1, INF, 0, -INF], np.float32)
    result = sample_row(logits, SamplingRow(temperature=0, num_top_logprobs=5))
    assert result.token_id == 1
    assert [c.token_id for c in result.candidates] == [1, 3]
    assert result.logprob == pytest.approx(-math.log(1 + math.exp(-1)))


@pytest.mark.parametrize(
    ("logits", "row", "message"),
    [
        ([math.nan, -INF, INF], SamplingRow(), "no finite logit for its 3 tokens"),
        ([1.0, 2.0], SamplingRow(banned_token_ids=(0, 1)), "leave none of 2 tokens"),
        ([1.0, 2.0], SamplingRow(allowed_tokens=np.zeros(1, np.uint32)), "leave none of 2"),
        ([1.0, 2.0], SamplingRow(allowed_tokens=np.ones(2, np.uint32)), "2 words.* need 1"),
        ([1.0, 2.0], SamplingRow(banned_token_ids=(2,)), "token id 2 .* from 0 to 1"),
        ([1.0, 2.0], SamplingRow(logit_bias=((-1, 1.0),)), "token id -1 .* from 0 to 1"),
    ],
)
def test_a_row_without_a_choice_fails_alone(
    logits: list[float], row: SamplingRow, message: str
) -> None:
    batch = np.array([[0.0] * len(logits), logits], np.float32)
    rows = [SamplingRow(), row]
    with pytest.raises(SamplingError, match=f"logits row 1: .*{message}"):
        sample(batch, rows)
    sound, failed = sample_each(batch, rows)
    assert isinstance(sound, SampledToken)
    assert isinstance(failed, SamplingError)


def test_rows_and_strategies_must_pair_up() -> None:
    with pytest.raises(ValueError, match="shorter"):
        sample(np.zeros((2, 5), np.float32), [SamplingRow()])
