"""Who is let in: what fits at all, and how much may wait, in all and of each key.

Not here: the order of the line (line) and who starts (scheduler).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from firstword.config import EngineConfig
from firstword.engine.line import WaitingLine
from firstword.engine.request import Request
from firstword.errors import PromptTooLongError, QueueFullError
from firstword.kvcache.manager import KVCacheManager

_QUEUED_TOKENS_PER_POOL_TOKEN = 8
"""Tokens that may wait for each that the KV pool holds, where only requests are limited."""

_LEAST_RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class QueueLimits:
    """Limits of the line.

    A key that has a name holds at most half of it, so that no client shuts out the others; where
    nobody has a name (no keys are in use) there is nobody to protect.

    Args:
        max_requests: sequences that wait, >= 1.
        max_tokens: tokens that those have to compute, >= 1; one that finds the line empty is
            let in whatever its length.
    """

    max_requests: int
    max_tokens: int

    def check(self, request: Request, line: WaitingLine, wait_ms: float) -> None:
        """Refuse a request for which there is no room in line.

        Args:
            request: who asks.
            line: those who wait.
            wait_ms: predicted milliseconds of the work before it.

        Raises:
            QueueFullError: the line is full, or the part of it that its key may take.
        """
        if not len(line):
            return
        retry_after = max(wait_ms / 1e3, _LEAST_RETRY_SECONDS)
        num_tokens = len(request.prompt_token_ids)
        self._compare(1 + len(line), num_tokens + line.num_tokens, 1, "", retry_after)
        if request.key:
            own = [s for s in line if s.request.key == request.key]
            if own:
                own_tokens = num_tokens + sum(s.num_tokens for s in own)
                self._compare(1 + len(own), own_tokens, 2, " of your key", retry_after)

    def _compare(
        self, num_requests: int, num_tokens: int, part: int, whose: str, retry_after: float
    ) -> None:
        limits = (
            (num_requests, max(1, self.max_requests // part), "requests"),
            (num_tokens, max(1, self.max_tokens // part), "tokens"),
        )
        for number, limit, what in limits:
            if number > limit:
                problem = f"{number} {what}{whose} would wait, but at most {limit} may"
                raise QueueFullError(problem, retry_after, key_only=part > 1)


def queue_limits(config: EngineConfig, num_pool_tokens: int) -> QueueLimits | None:
    """How much may wait; None: no limit.

    Args:
        config: the limits that were asked for.
        num_pool_tokens: tokens that the KV pool holds.
    """
    max_requests, max_tokens = config.max_queued_requests, config.max_queued_tokens
    if max_requests is None and max_tokens is None:
        return None
    return QueueLimits(
        max_requests or sys.maxsize,
        max_tokens or _QUEUED_TOKENS_PER_POOL_TOKEN * num_pool_tokens,
    )


def check_size(
    request: Request, manager: KVCacheManager, max_model_len: int, chunk: int | None
) -> None:
    """Refuse a request that could not even run alone.

    Args:
        request: who asks.
        manager: knows the pool.
        max_model_len: tokens that the context holds.
        chunk: positions that a step computes of it at most; None: all of them.

    Raises:
        PromptTooLongError: the prompt leaves no room for one token.
        CapacityError: the pool could not hold one of its sequences.
    """
    num_prompt_tokens = len(request.prompt_token_ids)
    if num_prompt_tokens >= max_model_len:
        raise PromptTooLongError(num_prompt_tokens, max_model_len)
    num_tokens = min(num_prompt_tokens + request.max_tokens, max_model_len)
    manager.check_capacity(num_tokens, num_tokens if chunk is None else chunk)
