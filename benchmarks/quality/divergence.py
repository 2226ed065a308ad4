"""How far one model's predictions are from another's, token by token.

Kullback-Leibler divergence, agreement of the most probable token, and the probability of the token
that the text goes on with. Not here: where logits come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array

_ROWS = 8
"""Rows at a time: the float64 copies of a large vocabulary's rows stay small."""

Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Predictions:
    """Predictions of the same tokens by a reference and by another.

    Args:
        kl: KL(reference || other) in nats [T].
        same_top: whether their most probable tokens are the same [T].
        reference_logprob: what the reference gave the actual token [T].
        logprob: what the other gave it [T].
    """

    kl: Float64Array
    same_top: NDArray[np.bool_]
    reference_logprob: Float64Array
    logprob: Float64Array

    @staticmethod
    def join(parts: Sequence[Predictions]) -> Predictions:
        """Those of several texts as one."""
        columns = zip(
            *((p.kl, p.same_top, p.reference_logprob, p.logprob) for p in parts), strict=True
        )
        kl, same_top, reference_logprob, logprob = (np.concatenate(c) for c in columns)
        return Predictions(kl, same_top, reference_logprob, logprob)


@dataclass(frozen=True)
class Summary:
    """Of all scored tokens.

    Args:
        num_tokens: how many.
        mean_kl: nats, with its standard error.
        mean_kl_error: standard error of the mean.
        p99_kl: 99th percentile.
        top_agreement: share of tokens with the same most probable one.
        reference_perplexity: of the reference.
        perplexity_ratio: the other's over the reference's.
        perplexity_ratio_error: standard error of the ratio, by the delta method, tokens taken as
            independent.
    """

    num_tokens: int
    mean_kl: float
    mean_kl_error: float
    p99_kl: float
    top_agreement: float
    reference_perplexity: float
    perplexity_ratio: float
    perplexity_ratio_error: float


def compare(reference: Float32Array, other: Float32Array, actual: Sequence[int]) -> Predictions:
    """Compare logits row by row, in float64.

    Args:
        reference: [T, V].
        other: [T, V].
        actual: [T] the tokens that the text goes on with.
    """
    parts = []
    for start in range(0, len(actual), _ROWS):
        rows = slice(start, start + _ROWS)
        parts.append(_compare(reference[rows], other[rows], np.asarray(actual[rows])))
    return Predictions.join(parts)


def _compare(x: Float32Array, y: Float32Array, actual: NDArray[np.int64]) -> Predictions:
    rows = np.arange(len(actual))
    p_log, q_log = _log_softmax(x), _log_softmax(y)
    difference = p_log - q_log
    return Predictions(
        kl=np.einsum("tv,tv->t", np.exp(p_log), difference),
        same_top=x.argmax(axis=1) == y.argmax(axis=1),
        reference_logprob=p_log[rows, actual],
        logprob=q_log[rows, actual],
    )


def _log_softmax(logits: Float32Array) -> Float64Array:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    result: Float64Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def summarize(predictions: Predictions) -> Summary:
    """Means, their standard errors, and the tail."""
    kl, count = predictions.kl, len(predictions.kl)
    lost = predictions.reference_logprob - predictions.logprob  # [T]
    ratio = float(np.exp(lost.mean()))
    return Summary(
        num_tokens=count,
        mean_kl=float(kl.mean()),
        mean_kl_error=float(kl.std(ddof=1) / np.sqrt(count)),
        p99_kl=float(np.percentile(kl, 99)),
        top_agreement=float(predictions.same_top.mean()),
        reference_perplexity=float(np.exp(-predictions.reference_logprob.mean())),
        perplexity_ratio=ratio,
        perplexity_ratio_error=ratio * float(lost.std(ddof=1) / np.sqrt(count)),
    )
