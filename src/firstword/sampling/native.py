"""The compiled twin of the sampler: the same tokens, probabilities and errors, bit for bit.

Not here: how a row is chosen from; `sampler` and csrc/kernels/sample.h say that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import firstword._native as _native
from firstword.batch import (
    Candidate,
    Float32Array,
    Int32Array,
    PenaltyTable,
    SampledToken,
    SamplingRow,
)
from firstword.errors import SamplingError
from firstword.sampling.sampler import (
    mask_size_error,
    no_finite_logit_error,
    nothing_allowed_error,
    unknown_token_error,
)


class NativeSampler:
    """Chooses tokens on the threads of a backend.

    Args:
        backend: of the compiled module.
    """

    def __init__(self, backend: _native.Backend) -> None:
        self._sampler = _native.Sampler(backend)

    def sample_each(
        self, logits: Float32Array, rows: Int32Array, strategies: Sequence[SamplingRow]
    ) -> tuple[SampledToken | SamplingError, ...]:
        """Choose tokens, and return a failure in place of a token where none can be chosen.

        Args:
            logits: [R', V] unaltered logits.
            rows: [R] the row of `logits` that each token is chosen from.
            strategies: R of them.

        Returns:
            R tokens, or errors where no token can be chosen.
        """
        outcomes = self._sampler.sample(logits, rows, native_strategies(strategies))
        kept = wanted_logits(logits, rows, strategies)
        return sampled_tokens(outcomes, strategies, kept, logits.shape[1])


def native_strategies(strategies: Sequence[SamplingRow]) -> list[_native.Strategy]:
    """Strategies as the compiled module takes them."""
    return [_strategy(strategy) for strategy in strategies]


def sampled_tokens(
    outcomes: Sequence[_native.Outcome],
    strategies: Sequence[SamplingRow],
    logits: Sequence[Float32Array | None],
    vocab_size: int,
) -> tuple[SampledToken | SamplingError, ...]:
    """What the compiled module chose, for `sample_each` and for steps that sample themselves.

    Args:
        outcomes: R of them.
        strategies: R.
        logits: R unaltered rows [V], or None where they are not wanted.
        vocab_size: V.
    """
    return tuple(
        _outcome(outcome, strategy, row, vocab_size)
        for outcome, strategy, row in zip(outcomes, strategies, logits, strict=True)
    )


def wanted_logits(
    logits: Float32Array, rows: Int32Array, strategies: Sequence[SamplingRow]
) -> list[Float32Array | None]:
    """Copies of the rows that strategies want back.

    Args:
        logits: [R', V].
        rows: [R] the row of `logits` that each token is chosen from.
        strategies: R of them.
    """
    if not any(strategy.want_logits for strategy in strategies):
        return [None] * len(strategies)
    return [
        logits[row].copy() if strategy.want_logits else None
        for row, strategy in zip(rows, strategies, strict=True)
    ]


def _strategy(row: SamplingRow) -> _native.Strategy:
    allowed = row.allowed_tokens
    return _native.Strategy(
        temperature=row.temperature,
        top_p=row.top_p,
        top_k=row.top_k,
        seed=row.seed,
        position=row.position,
        sample_index=row.sample_index,
        banned=row.banned_token_ids,
        bias_ids=[token_id for token_id, _ in row.logit_bias],
        bias=[value for _, value in row.logit_bias],
        allowed=None if allowed is None else np.ascontiguousarray(allowed, dtype=np.uint32),
        num_candidates=row.num_top_logprobs,
        penalties=None if row.penalties is None else _penalties(row.penalties),
    )


def _penalties(table: PenaltyTable) -> _native.Penalties:
    return _native.Penalties(
        token_ids=table.token_ids,
        counts=table.counts,
        repetition=table.repetition,
        frequency=table.frequency,
        presence=table.presence,
    )


def _outcome(
    outcome: _native.Outcome, row: SamplingRow, logits: Float32Array | None, vocab_size: int
) -> SampledToken | SamplingError:
    if outcome.status != _native.SampleStatus.OK:
        return _error(outcome, row, vocab_size)
    return SampledToken(
        token_id=outcome.token,
        logprob=outcome.logprob,
        probability=outcome.probability,
        num_survivors=outcome.num_survivors,
        uniform=None if row.temperature == 0 else outcome.uniform,
        candidates=tuple(Candidate(*candidate) for candidate in outcome.candidates),
        logits=logits,
    )


def _error(outcome: _native.Outcome, row: SamplingRow, vocab_size: int) -> SamplingError:
    match outcome.status:
        case _native.SampleStatus.NO_FINITE_LOGIT:
            return no_finite_logit_error(vocab_size)
        case _native.SampleStatus.NOTHING_ALLOWED:
            return nothing_allowed_error(vocab_size)
        case _native.SampleStatus.UNKNOWN_TOKEN:
            return unknown_token_error(outcome.token, vocab_size)
    assert row.allowed_tokens is not None
    return mask_size_error(len(row.allowed_tokens), vocab_size)
