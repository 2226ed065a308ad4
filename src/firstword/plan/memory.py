"""Memory as arithmetic: how many blocks a budget holds, and what context fits a machine."""

from __future__ import annotations

from dataclasses import dataclass

from firstword.errors import CapacityError
from firstword.kvcache.spec import KVCacheSpec

_SHARE_OF_FREE = 0.5
"""Share of the free memory that the KV pool may take when no size is asked for."""


@dataclass(frozen=True)
class PoolPlan:
    """The KV pool that was chosen.

    Args:
        num_blocks: pages in the pool.
        num_bytes: their bytes.
        max_model_len: context in tokens that the pool serves.
        notice: what the user should know, empty when everything is as asked.
    """

    num_blocks: int
    num_bytes: int
    max_model_len: int
    notice: str = ""


@dataclass(frozen=True)
class PoolRequest:
    """What the pool is wanted for.

    Args:
        model_context: longest context of the model, tokens.
        max_model_len: context asked for, or None for as much of the model's as fits.
        max_num_seqs: most sequences at once.
        num_step_tokens: most positions of one step.
        memory_bytes: bytes asked for, or None to size the pool from `free_bytes`.
        free_bytes: memory that can still be taken.
    """

    model_context: int
    max_model_len: int | None
    max_num_seqs: int
    num_step_tokens: int
    memory_bytes: int | None
    free_bytes: int


def plan_pool(spec: KVCacheSpec, request: PoolRequest) -> PoolPlan:
    """Size the KV pool.

    A pool must serve at least one sequence that fills the context. A context that was asked for
    and cannot fit is refused; the model's own is cut to what fits, with a notice.

    Raises:
        CapacityError: not even the context asked for, or a single block, fits.
    """
    wanted = min(request.max_model_len or request.model_context, request.model_context)
    budget = request.memory_bytes
    if budget is None:
        budget = int(request.free_bytes * _SHARE_OF_FREE)
    step = min(request.num_step_tokens, wanted)
    affordable = budget // spec.page_bytes
    needed = spec.blocks_per_sequence(wanted, step)
    notice = ""
    if needed > affordable:
        fitting = _longest_context(spec, affordable, step)
        if request.max_model_len is not None or fitting < 2:
            raise CapacityError(
                f"a context of {wanted} tokens needs {needed * spec.page_bytes:,} bytes of keys "
                f"and values, but {budget:,} are free for them: the longest that fits is "
                f"{fitting} tokens"
            )
        notice = (
            f"the context is {fitting} tokens instead of the model's {wanted}: "
            f"{budget:,} bytes are free for keys and values and the whole would need "
            f"{needed * spec.page_bytes:,}"
        )
        wanted, needed = fitting, spec.blocks_per_sequence(fitting, min(step, fitting))
    useful = needed * request.max_num_seqs
    num_blocks = affordable if request.memory_bytes is not None else min(affordable, useful)
    return PoolPlan(num_blocks, num_blocks * spec.page_bytes, wanted, notice)


def _longest_context(spec: KVCacheSpec, num_blocks: int, step: int) -> int:
    """The most tokens of one sequence that `num_blocks` hold, by bisection."""
    low, high = 0, num_blocks * spec.block_size
    while low < high:
        middle = (low + high + 1) // 2
        if spec.blocks_per_sequence(middle, min(step, middle)) <= num_blocks:
            low = middle
        else:
            high = middle - 1
    return low
