"""The values that pass between the engine and a model: one step's input and its result.

Arrays only; who owns which block and why a token was scheduled is the scheduler's business.
Shapes: T positions in the step, N sequences, R rows that need logits, V vocabulary entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firstword.errors import SamplingError

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]

PADDED_SLOT = -1
"""Slot of a padded position: its K/V are stored nowhere."""


class CopySpan(NamedTuple):
    """Copy the first `num_tokens` tokens of block `source` to block `destination`."""

    source: int
    destination: int
    num_tokens: int


@dataclass(frozen=True)
class ForwardBatch:
    """Everything a forward pass needs to know besides weights: one flat T axis, no phases.

    Args:
        token_ids: [T]; an entry -(row + 1) means "the token sampled for logits row `row` in the
            step before", so that a step can be prepared before that token is known.
        positions: [T] absolute positions in their sequences.
        query_start_loc: [N + 1] where each sequence's rows begin in T; the last entry is T.
        seq_lens: [N] tokens of each sequence whose K/V exist once this step has stored its own.
        block_tables: per group [N, B]: block of positions 32 b .. 32 b + 31, -1 where none is
            held (left behind by a window, or padding).
        slot_mapping: per group [T]: block x block_size + offset where a position's K/V go.
        logits_indices: [R] rows of T that need logits; a row may be named more than once.
        block_copies: run in this order before anything is stored.
    """

    token_ids: Int32Array
    positions: Int32Array
    query_start_loc: Int32Array
    seq_lens: Int32Array
    block_tables: tuple[Int32Array, ...]
    slot_mapping: tuple[Int32Array, ...]
    logits_indices: Int32Array
    block_copies: tuple[CopySpan, ...] = ()

    @property
    def num_tokens(self) -> int:
        """T, the positions computed in this step."""
        return len(self.token_ids)

    @property
    def num_seqs(self) -> int:
        """N, the sequences in this step."""
        return len(self.seq_lens)

    def rows_of(self, sequence: int) -> slice:
        """The rows of T that belong to the sequence at index `sequence`."""
        return slice(int(self.query_start_loc[sequence]), int(self.query_start_loc[sequence + 1]))


@dataclass(frozen=True, eq=False)
class PenaltyTable:
    """What is taken off the logits of tokens that have occurred.

    Args:
        token_ids: [K] the tokens, each once.
        counts: [K] how often each has occurred, at least 1.
        repetition: divides positive logits and multiplies the others, above 0; 1 for none.
        frequency: taken off a logit as often as its token has occurred.
        presence: taken off a logit once.
    """

    token_ids: Int32Array
    counts: Int32Array
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0


@dataclass(frozen=True)
class SamplingRow:
    """How one logits row becomes a token.

    Args:
        temperature: 0 takes the largest logit; else logits are divided by it.
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: keep the smallest set of tokens whose probabilities add up to at least this.
        seed: key of the random numbers, 64 bit.
        position: position of the token to be sampled; with `sample_index` the random counter.
        sample_index: which of a request's n samples this is.
        banned_token_ids: never sampled (end tokens before min_tokens).
        logit_bias: added to the logits, by token id.
        penalties: what is taken off tokens that have occurred; None for nothing.
        allowed_tokens: [ceil(V / 32)] bitmask of the tokens allowed, or None for all.
        num_top_logprobs: candidates wanted back with the token.
        want_logits: the whole row is wanted back.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    position: int = 0
    sample_index: int = 0
    banned_token_ids: tuple[int, ...] = ()
    logit_bias: tuple[tuple[int, float], ...] = ()
    penalties: PenaltyTable | None = None
    allowed_tokens: NDArray[np.uint32] | None = None
    num_top_logprobs: int = 0
    want_logits: bool = False


@dataclass(frozen=True)
class StepInput:
    """One step: what to compute and what to sample from each logits row."""

    batch: ForwardBatch
    sampling: tuple[SamplingRow, ...]  # R rows


@dataclass(frozen=True)
class Candidate:
    """A token that was in the running.

    Args:
        token_id: the token.
        logprob: the model's: log softmax of the unaltered logits.
        probability: what the strategy left of it: 0 when it was cut, 1 when it was the only one.
    """

    token_id: int
    logprob: float
    probability: float


@dataclass(frozen=True)
class SampledToken:
    """What one logits row gave.

    Args:
        token_id: the token chosen.
        logprob: the model's own log probability of it.
        probability: the probability the strategy gave it.
        num_survivors: tokens that the strategy left to choose from.
        uniform: the random number drawn, in [0, 1); None for a greedy choice.
        candidates: the most probable tokens, best first, when asked for.
        logits: [V] the unaltered logits, when asked for.
    """

    token_id: int
    logprob: float
    probability: float
    num_survivors: int
    uniform: float | None = None
    candidates: tuple[Candidate, ...] = ()
    logits: Float32Array | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class StepResult:
    """What a step gave: one sampled token per logits row, and how long its parts took.

    Args:
        sampled: R tokens, or the error of a row that no token can be chosen from.
        forward_ms: milliseconds in the model.
        sampling_ms: milliseconds from logits to tokens.
        native_ms: milliseconds of both that compiled code ran; None where there is none.
        gap_ms: milliseconds that compiled code stood still before it, where the step had been
            submitted while the one before ran; None elsewhere.
    """

    sampled: tuple[SampledToken | SamplingError, ...]
    forward_ms: float = 0.0
    sampling_ms: float = 0.0
    native_ms: float | None = None
    gap_ms: float | None = None
