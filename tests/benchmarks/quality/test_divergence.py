from __future__ import annotations

import numpy as np
import pytest

from benchmarks.quality.divergence import Predictions, compare, summarize

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (20, 50)).astype(np.float32)
NOISY = LOGITS + RNG.normal(0, 0.3, LOGITS.shape).astype(np.float32)
ACTUAL = RNG.integers(0, 50, 20).tolist()


def test_divergence_is_that_of_the_definition() -> None:
    found = compare(LOGITS, NOISY, ACTUAL)
    for t, token in enumerate(ACTUAL):
        p, q = (np.exp(x[t].astype(np.float64)) for x in (LOGITS, NOISY))
        p, q = p / p.sum(), q / q.sum()
        assert found.kl[t] == pytest.approx((p * np.log(p / q)).sum(), abs=1e-12)
        assert found.same_top[t] == (p.argmax() == q.argmax())
        assert found.reference_logprob[t] == pytest.approx(np.log(p[token]))
        assert found.logprob[t] == pytest.approx(np.log(q[token]))


def test_equal_logits_lose_nothing_and_a_shift_does_not_matter() -> None:
    summary = summarize(compare(LOGITS, LOGITS + np.float32(4), ACTUAL))
    assert abs(summary.mean_kl) < 1e-6 and abs(summary.p99_kl) < 1e-6
    assert summary.top_agreement == 1
    assert summary.perplexity_ratio == pytest.approx(1, abs=1e-6)


def test_summary_of_numbers_worked_out_by_hand() -> None:
    predictions = Predictions(
        kl=np.array([0.0, 0.1, 0.2, 0.5]),
        same_top=np.array([True, True, False, True]),
        reference_logprob=np.log([0.5, 0.5, 0.25, 0.25]),
        logprob=np.log([0.5, 0.25, 0.25, 0.25]),
    )
    summary = summarize(predictions)
    assert (summary.num_tokens, summary.top_agreement) == (4, 0.75)
    assert summary.mean_kl == pytest.approx(0.2)
    assert summary.mean_kl_error == pytest.approx(np.std([0, 0.1, 0.2, 0.5], ddof=1) / 2)
    assert summary.p99_kl == pytest.approx(0.491)
    assert summary.reference_perplexity == pytest.approx(2**1.5)
    assert summary.perplexity_ratio == pytest.approx(2**0.25)
    error = 2**0.25 * np.std([0, np.log(2), 0, 0], ddof=1) / 2
    assert summary.perplexity_ratio_error == pytest.approx(error)
