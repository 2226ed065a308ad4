"""The plain values that a scheduler hands out and takes back, and what a step costs.

Not here: any decision (scheduler) or any array (batch_builder).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from math import inf

from firstword.engine.request import Sequence
from firstword.kvcache.prefix_cache import PrefixHit
from firstword.kvcache.tables import BlockCopy


@dataclass(frozen=True, slots=True)
class StepLoad:
    """How much there is to compute in a step.

    Args:
        num_tokens: positions computed; the unit of all counters.
        num_pairs: pairs of a position and one that it attends to.
        num_samples: rows from which a token is chosen.
    """

    num_tokens: int
    num_pairs: int
    num_samples: int


@dataclass(frozen=True, slots=True)
class StepTime:
    """Predicts how long a step takes; linear in all that it counts.

    A line was enough where it was tried: SmolLM2 on two cores, 1 .. 504 rows beside 0 .. 16
    decodes. Kernels take rows in blocks, so full ones may come cheaper than a line says; those
    measurements neither show it nor exclude it.

    Args:
        ms_per_step: milliseconds of a step whatever is in it (reading the weights).
        ms_per_token: milliseconds of each position computed.
        ms_per_token_context: milliseconds of each pair of a position and one it attends to.
        ms_per_sample: milliseconds of each row from which a token is chosen (its logits).
    """

    ms_per_step: float = 0.0
    ms_per_token: float = 0.0
    ms_per_token_context: float = 0.0
    ms_per_sample: float = 0.0

    def predict(self, num_tokens: int, start: int) -> float:
        """Milliseconds that a chunk of `num_tokens` from position `start` adds to a step."""
        pairs = num_tokens * start + num_tokens * (num_tokens + 1) // 2
        return self.ms_per_token * num_tokens + self.ms_per_token_context * pairs

    def predict_decode(self, start: int) -> float:
        """Milliseconds that one position at `start`, and the token it leads to, add to a step."""
        return self.ms_per_token + self.ms_per_token_context * (start + 1) + self.ms_per_sample

    def total(self, load: StepLoad) -> float:
        """Milliseconds of a whole step."""
        return (
            self.ms_per_step
            + self.ms_per_token * load.num_tokens
            + self.ms_per_token_context * load.num_pairs
            + self.ms_per_sample * load.num_samples
        )

    def max_tokens_within(self, ms: float, start: int, limit: int) -> int:
        """Most tokens of a chunk from `start`, at most `limit`, that add no more than `ms`."""
        if ms == inf:
            return max(limit, 0)
        sizes = range(1, limit + 1)
        return bisect_right(sizes, ms, key=lambda num_tokens: self.predict(num_tokens, start))


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """What one sequence does in a step.

    Args:
        sequence: whose tokens.
        start: first position computed.
        num_tokens: positions computed, >= 1.
        samples: indices of the request's sequences for which a token is wanted from the last
            row; empty while tokens remain to be computed, several where n samples start here.
        block_tables: per KV group, the blocks of the sequence; entry i holds the positions from
            i * block_size on, -1 where none is held; a state group has the one running state.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...]


def load_of(scheduled: tuple[ScheduledSequence, ...]) -> StepLoad:
    """What a step comes to."""
    num_tokens = num_pairs = num_samples = 0
    for item in scheduled:
        size = item.num_tokens
        num_tokens += size
        num_pairs += size * item.start + size * (size + 1) // 2
        num_samples += len(item.samples)
    return StepLoad(num_tokens, num_pairs, num_samples)


@dataclass(frozen=True, slots=True)
class Preemption:
    """A sequence lost its blocks and will be recomputed.

    Args:
        sequence: which.
        num_lost_tokens: computed positions given up; the prefix cache may still return some.
        reason: the rule that chose it.
    """

    sequence: Sequence
    num_lost_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step: what to compute, and what happened on the way to it.

    Args:
        step: number of the step, from 1.
        time: when it was made, in seconds on the scheduler's clock.
        scheduled: at least one sequence; each at most once.
        block_copies: run these before anything is written, in any order.
        preemptions: sequences that lost their blocks, in order.
        prefix_hits: sequences admitted in this step, and what the cache gave them.
        load: how much there is to compute.
        predicted_ms: milliseconds that the step should take.
    """

    step: int
    time: float
    scheduled: tuple[ScheduledSequence, ...]
    block_copies: tuple[BlockCopy, ...]
    preemptions: tuple[Preemption, ...]
    prefix_hits: tuple[tuple[Sequence, PrefixHit], ...]
    load: StepLoad
    predicted_ms: float

    @property
    def num_tokens(self) -> int:
        """Positions computed in this step."""
        return self.load.num_tokens

    @property
    def request_ids(self) -> frozenset[str]:
        """Who takes part."""
        return frozenset(item.sequence.request.request_id for item in self.scheduled)


@dataclass(frozen=True, slots=True)
class SequenceUpdate:
    """A sequence got a token; `finished` says whether it was the last."""

    sequence: Sequence
    token_id: int
    finished: bool
