"""What goes to an engine and comes back, in values that also travel between processes.

Not here: how they travel (loop, engine_process).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from firstword.engine.outputs import PromptProgress, RequestMetrics, SequenceOutput
from firstword.engine.request import RequestOptions
from firstword.engine.stats import EngineStats
from firstword.errors import FirstwordError
from firstword.sampling.params import SamplingParams

# --- to the engine ---


@dataclass(frozen=True)
class Add:
    """Queue a request; answered by `Accepted` or `Refused`."""

    request_id: str
    prompt_token_ids: Sequence[int]
    params: SamplingParams
    options: RequestOptions


@dataclass(frozen=True)
class Abort:
    """End a request; nothing more is said of it."""

    request_id: str


@dataclass(frozen=True)
class Stop:
    """End one sample, whose text reached a stop string."""

    request_id: str
    sample_index: int
    stop_string: str


@dataclass(frozen=True)
class Shutdown:
    """End the loop once the step under way is over; what runs is dropped."""


Command = Add | Abort | Stop | Shutdown

# --- from the engine ---


@dataclass(frozen=True)
class EngineInfo:
    """What there is to know of a loaded model.

    Args:
        max_model_len: context in tokens.
        max_num_seqs: sequences at once, at most.
        block_size: tokens of a KV block.
        num_blocks: KV blocks in the pool.
        kv_bytes_per_token: K/V bytes of one token over all layers.
        kv_dtype: how keys and values are kept: float16, q8.
        kv_pool_bytes: bytes of the pool.
        weight_bytes: bytes of the weights in the file.
        backend: name of the ops backend.
        num_threads: threads it computes with.
        fingerprint: tells one model from another.
        notices: what the user should know, one sentence each.
        memory_summary: how many tokens and users the pool holds, and why, in a line.
    """

    max_model_len: int
    max_num_seqs: int
    block_size: int
    num_blocks: int
    kv_bytes_per_token: int
    kv_dtype: str
    kv_pool_bytes: int
    weight_bytes: int
    backend: str
    num_threads: int
    fingerprint: str
    notices: tuple[str, ...] = ()
    memory_summary: str = ""


@dataclass(frozen=True)
class Ready:
    """The model is loaded."""

    info: EngineInfo


@dataclass(frozen=True)
class LoadFailed:
    """The model cannot be loaded; the engine ends."""

    error: FirstwordError


class Accepted(NamedTuple):
    """A request is queued.

    Args:
        request_id: which.
        params: its parameters in force, seed and limits filled in.
        num_ahead: sequences in line before it.
    """

    request_id: str
    params: SamplingParams
    num_ahead: int


class Refused(NamedTuple):
    """A request was not queued, or cannot go on."""

    request_id: str
    error: FirstwordError


class Finished(NamedTuple):
    """All samples of a request have ended."""

    request_id: str
    metrics: RequestMetrics


class Progressed(NamedTuple):
    """A prompt was read further."""

    request_id: str
    progress: PromptProgress


class StepMessage(NamedTuple):
    """What one step, and the commands before it, led to: one message for all requests.

    Args:
        replies: requests queued or refused.
        progress: prompts that are still read.
        outputs: new tokens.
        finished: requests that are over; their last tokens are in `outputs` or came before.
        stats: how the engine stands.
        gap_ms: see `Engine.gap_ms`; None where no step was run.
    """

    replies: list[Accepted | Refused]
    progress: list[Progressed]
    outputs: list[SequenceOutput]
    finished: list[Finished]
    stats: EngineStats = EngineStats()
    gap_ms: float | None = None

    @classmethod
    def empty(cls) -> StepMessage:
        """A message to be filled."""
        return cls([], [], [], [])


Message = Ready | LoadFailed | StepMessage
