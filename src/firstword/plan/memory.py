"""Memory as arithmetic: how many blocks a budget holds, and what context fits a machine.

One budget covers the process: what it holds already, what the backend will still take (weights
that are mapped, scratch), a reserve, and the KV pool, which gets all that is left. Not here: what
the machine has (hardware), and the bytes of the pool (kvcache.storage).
"""

from __future__ import annotations

from dataclasses import dataclass

from firstword.errors import CapacityError
from firstword.kvcache.spec import KVCacheSpec

_SHARE_OF_FREE = 0.5
"""Share of the free memory that the KV pool may take when no size is asked for."""

RESERVE_BYTES = 256 * 2**20
"""Kept of a budget for code and libraries, for requests, and for the process that speaks HTTP."""

_USUAL_CONTEXT = 4096
"""Tokens of a user in the summary, where the context is longer."""


@dataclass(frozen=True)
class PoolPlan:
    """The KV pool that was chosen.

    Args:
        num_blocks: pages in the pool.
        num_bytes: their bytes.
        max_model_len: context in tokens that the pool serves.
        notice: what the user should know, empty when everything is as asked.
        summary: how many tokens and users fit, and why, in a line.
    """

    num_blocks: int
    num_bytes: int
    max_model_len: int
    notice: str = ""
    summary: str = ""


@dataclass(frozen=True)
class ProcessBudget:
    """The memory of a whole process.

    Args:
        num_bytes: what it may take in all.
        taken_bytes: what it holds already, files that it maps apart.
        promised_bytes: what its backend will take besides the pool: mapped weights and scratch.
    """

    num_bytes: int
    taken_bytes: int
    promised_bytes: int

    def pool_bytes(self) -> int:
        """What is left for the KV pool.

        Raises:
            CapacityError: nothing is.
        """
        spent = self.taken_bytes + self.promised_bytes + RESERVE_BYTES
        if spent >= self.num_bytes:
            raise CapacityError(
                f"a memory of {self.num_bytes:,} bytes has no room for keys and values: the "
                f"process holds {self.taken_bytes:,}, weights and scratch take "
                f"{self.promised_bytes:,} and {RESERVE_BYTES:,} are kept in reserve: give more "
                f"than {spent:,} bytes"
            )
        return self.num_bytes - spent


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
        reason: what limits it, in words, for the summary.
    """

    model_context: int
    max_model_len: int | None
    max_num_seqs: int
    num_step_tokens: int
    memory_bytes: int | None
    free_bytes: int
    reason: str = ""


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
    summary = _summary(spec, num_blocks, wanted, request)
    return PoolPlan(num_blocks, num_blocks * spec.page_bytes, wanted, notice, summary)


def _summary(spec: KVCacheSpec, num_blocks: int, context: int, request: PoolRequest) -> str:
    """Say how many tokens and users fit, and why."""

    def users(num_tokens: int) -> str:
        step = min(request.num_step_tokens, num_tokens)
        fitting = num_blocks // spec.blocks_per_sequence(num_tokens, step)
        count = min(fitting, request.max_num_seqs)
        return f"{count:,} {'user' if count == 1 else 'users'} of {num_tokens:,} tokens"

    parts = [users(n) for n in (_USUAL_CONTEXT, context) if n <= context]
    size = f"{num_blocks * spec.page_bytes / 1e6:,.0f} MB"
    reason = f" ({request.reason})" if request.reason else ""
    return f"keys and values: {size}{reason}, room for {', or '.join(dict.fromkeys(parts))}"


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
