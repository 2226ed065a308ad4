"""How much may wait: a bounded line, and a part of it for each key.

Not here: the order of the line (line) and who starts (scheduler).
"""

from __future__ import annotations

from dataclasses import dataclass

from firstword.engine.line import WaitingLine
from firstword.engine.request import Request
from firstword.errors import QueueFullError

QUEUED_TOKENS_PER_POOL_TOKEN = 8
"""Tokens that may wait for each that the KV pool holds, where no limit is given."""

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
