"""Logits processors: each takes one row and leaves fewer or other tokens to choose from.

A row is the caller's own copy and is changed in place; a token that is out has logit -inf (or
weight 0). Not here: the softmax between logits and weights, and the choice itself.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array, PenaltyTable
from firstword.sampling.softmax import running_sums, total

_FIRST_GUESS = 256  # tokens among which the nucleus is looked for first
_GROWTH = 16


def drop_non_finite(logits: Float32Array) -> None:
    """Take NaN and +inf, which no sound model gives, out of the running.

    Args:
        logits: [V], changed in place.
    """
    logits[~np.isfinite(logits)] = -np.inf


def add_bias(logits: Float32Array, bias: Iterable[tuple[int, float]]) -> None:
    """Add to the logits of single tokens, in single precision.

    Args:
        logits: [V], changed in place.
        bias: pairs of token id and what is added; -inf bans the token.
    """
    for token_id, value in bias:
        logits[token_id] += np.float32(value)


def penalize(logits: Float32Array, table: PenaltyTable) -> None:
    """Take the penalties off tokens that have occurred, in single precision.

    For each: the logit is divided by the repetition penalty if positive, else multiplied with it
    (Keskar et al., "CTRL", 2019, as others have it for negative logits); then frequency x count
    and then presence are subtracted. What overflows is the largest finite number.

    Args:
        logits: [V], finite or -inf, changed in place.
        table: the tokens, their counts and the penalties.
    """
    ids = table.token_ids
    values = logits[ids]
    # A penalty too small for single precision acts like the smallest one that is not.
    repetition = max(np.float32(table.repetition), np.finfo(np.float32).tiny)
    with np.errstate(over="ignore", under="ignore"):
        values = np.where(values > 0, values / repetition, values * repetition)
        values -= np.float32(table.frequency) * table.counts.astype(np.float32)
        values -= np.float32(table.presence)
    logits[ids] = np.minimum(values, np.finfo(np.float32).max)


def ban_tokens(logits: Float32Array, token_ids: Iterable[int]) -> None:
    """Take single tokens out of the running.

    Args:
        logits: [V], changed in place.
        token_ids: who is out.
    """
    for token_id in token_ids:
        logits[token_id] = -np.inf


def keep_allowed(logits: Float32Array, allowed: NDArray[np.uint32]) -> None:
    """Keep the tokens whose bit is set: bit i % 32 of word i // 32 for token i.

    Args:
        logits: [V], changed in place.
        allowed: [ceil(V / 32)] words.
    """
    words = np.ascontiguousarray(allowed, dtype="<u4")  # bytes in order whatever the machine
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    logits[bits[: len(logits)] == 0] = -np.inf


def top_ids(values: Float32Array, k: int) -> NDArray[np.intp]:
    """The ids of the k largest values, in increasing order; ties go to the lowest id.

    Args:
        values: [V], not NaN.
        k: at least 1; V or more takes all.

    Returns:
        [min(k, V)] ids.
    """
    if k >= len(values):
        return np.arange(len(values))
    border = np.partition(values, len(values) - k)[len(values) - k]
    above = np.flatnonzero(values > border)
    at = np.flatnonzero(values == border)[: k - len(above)]
    return np.sort(np.concatenate((above, at)))


def best_first(values: Float32Array, ids: NDArray[np.intp]) -> NDArray[np.intp]:
    """Order token ids by value, largest first; ties go to the lowest id.

    Args:
        values: [V].
        ids: [K] in increasing order.

    Returns:
        [K] the same ids.
    """
    # One 64-bit key per token sorts several times faster than a stable sort of the values: above
    # the bits of -value, ordered like the value (a negative float's bits count backwards), below
    # the id. Adding 0 makes -0 and +0 equal.
    bits = (np.float32(0) - values[ids]).view(np.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = np.sort((ordered.astype(np.int64) << 32) | ids)
    return keys & 0xFFFFFFFF


def keep_top_k(logits: Float32Array, k: int) -> None:
    """Keep the k largest logits; at the border ties go to the lowest id.

    Temperature does not change the order of logits, so this may run before it is applied.

    Args:
        logits: [V], changed in place.
        k: how many; 0 keeps all.
    """
    if 0 < k < len(logits):
        ids = top_ids(logits, k)
        kept = logits[ids]
        logits.fill(-np.inf)
        logits[ids] = kept


def keep_top_p(weights: Float32Array, p: float) -> None:
    """Keep the smallest set of most probable tokens with at least the share p of the total.

    Tokens are taken up in order of weight, ties lowest id first, until their running sum reaches
    p times the total; at least one is kept. Source: Holtzman et al., "The Curious Case of Neural
    Text Degeneration", ICLR 2020 (nucleus sampling).

    Args:
        weights: [V] softmax weights, changed in place.
        p: in (0, 1]; 1 keeps all.
    """
    if p >= 1:
        return
    wanted = p * total(weights)
    ids = np.flatnonzero(weights)
    running = weights[ids]
    size = _FIRST_GUESS
    while True:
        # The first entries of the order do not depend on how many are put in order.
        order = best_first(running, top_ids(running, size))
        sums = running_sums(running[order])
        missing = wanted - sums[-1]
        if missing <= 0 or size >= len(running):
            break
        # No later token weighs more than the last one here: at least `more` are needed.
        more = int(missing / running[order[-1]])
        size = max(_GROWTH * size, 2 * more)
    nucleus = order[: int(np.searchsorted(sums, wanted)) + 1]
    weights.fill(0)
    weights[ids[nucleus]] = running[nucleus]
