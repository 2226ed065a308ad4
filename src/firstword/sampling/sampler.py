"""From logits to tokens: what the strategy leaves, and the draw that chooses from it.

Each row is handled alone, so a token never depends on the other rows of the step. Not here: the
logits, and what is done with the tokens.

A row is chosen from as follows; a native twin that follows this gives the same bits.

1. Logits that are NaN or +inf count as -inf. Then bias, penalties (repetition, frequency,
   presence), bans and the allowed tokens apply, in this order.
2. Temperature 0: the largest logit, ties to the lowest id.
3. Else the k largest logits stay (top-k) and become weights (`softmax_weights`, temperature
   applied); top-p cuts the weights further (`keep_top_p`).
4. The draw: u is the row's random number (`rng.uniform`). The total is the sum of the chunks of
   4,096 token ids (`chunk_sums`), added in order. The chosen chunk is the first whose running sum
   exceeds u x total. In it, starting from the running sum of the chunks before, weights are added
   in order of token id, in double precision; the first token whose running sum exceeds u x total
   is chosen. Should rounding let none exceed it, the last token of the chunk with a weight is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firstword.batch import Candidate, Float32Array, SampledToken, SamplingRow
from firstword.errors import SamplingError
from firstword.sampling import processors
from firstword.sampling.rng import uniform
from firstword.sampling.softmax import (
    CHUNK,
    chunk_sums,
    log_sum_exp,
    running_sums,
    softmax_weights,
)


def sample(logits: Float32Array, rows: Sequence[SamplingRow]) -> tuple[SampledToken, ...]:
    """Choose one token from each row.

    Args:
        logits: [R, V] unaltered logits.
        rows: R strategies.

    Returns:
        R tokens.

    Raises:
        SamplingError: no token can be chosen from a row, which is named. `sample_each` gives the
            tokens of the other rows.
    """
    outcomes = sample_each(logits, rows)
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, SamplingError):
            raise SamplingError(f"logits row {index}: {outcome}") from outcome
    return tuple(outcome for outcome in outcomes if isinstance(outcome, SampledToken))


def sample_each(
    logits: Float32Array, rows: Sequence[SamplingRow]
) -> tuple[SampledToken | SamplingError, ...]:
    """Choose one token from each row, and return a row's failure in its place.

    Args:
        logits: [R, V] unaltered logits.
        rows: R strategies.

    Returns:
        R tokens, or errors where no token can be chosen.
    """
    outcomes: list[SampledToken | SamplingError] = []
    for row_logits, row in zip(logits, rows, strict=True):
        try:
            outcomes.append(sample_row(row_logits, row))
        except SamplingError as error:
            outcomes.append(error)
    return tuple(outcomes)


def sample_row(logits: Float32Array, row: SamplingRow) -> SampledToken:
    """Choose one token.

    Args:
        logits: [V] unaltered logits; not changed.
        row: the strategy.

    Returns:
        The token, the model's log probability of it (log softmax of the unaltered logits) and the
        probability the strategy gave it: 1 for a greedy choice.

    Raises:
        SamplingError: the row has no finite logit, bans leave no token, or a token id is not in
            the vocabulary.
    """
    model = _finite_logits(logits)
    altered = _alter(model, row)
    if row.temperature == 0:
        token, u = int(altered.argmax()), None
        weights, mass = np.zeros_like(altered), 1.0
        weights[token] = 1
    else:
        weights = _weights(altered, row)
        u = uniform(row.seed, row.position, row.sample_index)
        token, mass = _draw(weights, u)
    log_total = log_sum_exp(model)
    shown = _most_probable(model, row.num_top_logprobs)
    return SampledToken(
        token_id=token,
        logprob=float(model[token]) - log_total,
        probability=float(weights[token]) / mass,
        num_survivors=int(np.count_nonzero(weights)),
        uniform=u,
        candidates=tuple(
            Candidate(i, float(model[i]) - log_total, float(weights[i]) / mass) for i in shown
        ),
        logits=logits.copy() if row.want_logits else None,
    )


def _finite_logits(logits: Float32Array) -> Float32Array:
    """The row itself, or a copy in which NaN and +inf are -inf."""
    largest = logits.max()
    if not np.isfinite(largest):  # one NaN makes the maximum NaN
        logits = logits.copy()
        processors.drop_non_finite(logits)
        largest = logits.max()
    if largest == -np.inf:
        raise no_finite_logit_error(len(logits))
    return logits


def _alter(logits: Float32Array, row: SamplingRow) -> Float32Array:
    """Bias, penalties, bans and the allowed tokens, on a copy if there are any."""
    is_altered = row.logit_bias or row.banned_token_ids or row.penalties is not None
    if not is_altered and row.allowed_tokens is None:
        return logits
    _check_row(row, len(logits))
    altered = logits.copy()
    processors.add_bias(altered, row.logit_bias)
    if row.penalties is not None:
        processors.penalize(altered, row.penalties)
    processors.ban_tokens(altered, row.banned_token_ids)
    if row.allowed_tokens is not None:
        processors.keep_allowed(altered, row.allowed_tokens)
    if altered.max() == -np.inf:
        raise nothing_allowed_error(len(logits))
    return altered


def _check_row(row: SamplingRow, vocab_size: int) -> None:
    named = [token_id for token_id, _ in row.logit_bias] + list(row.banned_token_ids)
    if row.penalties is not None:
        named += row.penalties.token_ids.tolist()
    for token_id in named:
        if not 0 <= token_id < vocab_size:
            raise unknown_token_error(token_id, vocab_size)
    if row.allowed_tokens is not None and len(row.allowed_tokens) != -(-vocab_size // 32):
        raise mask_size_error(len(row.allowed_tokens), vocab_size)


def _weights(altered: Float32Array, row: SamplingRow) -> Float32Array:
    """What temperature, top-k and top-p leave: [V] weights, 0 for a token that was cut."""
    if row.top_k:
        altered = altered.copy()
        processors.keep_top_k(altered, row.top_k)
    weights = softmax_weights(altered, row.temperature)
    processors.keep_top_p(weights, row.top_p)
    return weights


def _draw(weights: Float32Array, u: float) -> tuple[int, float]:
    """The token that u in [0, 1) falls on, and the total of the weights."""
    ends = running_sums(chunk_sums(weights))  # [C]
    mass = float(ends[-1])
    target = u * mass
    chunk = int(np.searchsorted(ends, target, side="right"))
    before = float(ends[chunk - 1]) if chunk else 0.0
    inside = weights[chunk * CHUNK : (chunk + 1) * CHUNK].astype(np.float64)
    sums = running_sums(np.concatenate(([before], inside)))[1:]
    index = int(np.searchsorted(sums, target, side="right"))
    if index == len(inside):
        index = int(np.flatnonzero(inside)[-1])
    return chunk * CHUNK + index, mass


def _most_probable(logits: Float32Array, count: int) -> list[int]:
    """The model's `count` most probable tokens, best first, ties to the lowest id.

    A token whose logit is -inf is not among them.
    """
    if count == 0:
        return []
    order = processors.best_first(logits, processors.top_ids(logits, count))
    return [int(i) for i in order if logits[i] != -np.inf]


def no_finite_logit_error(vocab_size: int) -> SamplingError:
    """A row without a finite logit."""
    return SamplingError(
        f"the model gave no finite logit for its {vocab_size} tokens: its weights may be damaged, "
        "or a number overflowed on the way; verify the model file"
    )


def nothing_allowed_error(vocab_size: int) -> SamplingError:
    """A row in which every token is ruled out."""
    return SamplingError(
        f"bias, banned tokens and allowed tokens leave none of {vocab_size} tokens to choose "
        "from: allow at least one"
    )


def unknown_token_error(token_id: int, vocab_size: int) -> SamplingError:
    """A strategy that names a token the vocabulary does not have."""
    return SamplingError(
        f"token id {token_id} is not in the vocabulary: ids go from 0 to {vocab_size - 1}"
    )


def mask_size_error(num_words: int, vocab_size: int) -> SamplingError:
    """A mask of allowed tokens of another length than the vocabulary's."""
    return SamplingError(
        f"the mask of allowed tokens has {num_words} words of 32 bits: {vocab_size} tokens need "
        f"{-(-vocab_size // 32)}"
    )
