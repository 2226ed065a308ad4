"""What each key has used of the engine, so that keys are served alike however much they ask for.

Not here: who of a key goes first (line) and how large a chunk is (policy).

Start-time fair queueing (Goyal, Vin, Cheng 1996) with tokens for service: each key has a virtual
time, the tokens computed and generated for it, and the one with the least is served next. A key
that comes back from idleness starts a little before the least of the busy ones, so it has saved
nothing up; one that has used more than that keeps its debt until the others have caught up.
"""

from __future__ import annotations

_CREDIT_TOKENS = 256
"""How far behind the others a key may start: a short prompt is read before its turn is over."""

_REMEMBERED_KEYS = 1_000
"""Idle keys in debt that are kept; beyond that the debts are forgotten."""


class KeyShares:
    """Tokens used by key, comparable between those that have requests now."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._num_requests: dict[str, int] = {}  # of the busy keys
        self._virtual_time = 0.0
        self._first_key: str | None = None
        self.is_shared = False  # whether more than one key was ever seen

    @property
    def num_busy(self) -> int:
        """Keys that have requests."""
        return len(self._num_requests)

    def join(self, key: str) -> None:
        """Note that a request of `key` came."""
        self.is_shared |= self._first_key not in (None, key)
        self._first_key = self._first_key or key
        if key not in self._num_requests:
            self._catch_up()
            start = self._virtual_time - _CREDIT_TOKENS
            self._used[key] = max(self._used.get(key, start), start)
        self._num_requests[key] = self._num_requests.get(key, 0) + 1

    def leave(self, key: str) -> None:
        """Note that a request of `key` ended."""
        self._num_requests[key] -= 1
        if self._num_requests[key]:
            return
        self._catch_up()
        del self._num_requests[key]
        if (
            self._used[key] <= self._virtual_time - _CREDIT_TOKENS
            or len(self._used) > _REMEMBERED_KEYS
        ):
            del self._used[key]

    def charge(self, key: str, num_tokens: float) -> None:
        """Note that `num_tokens` are computed or generated for a busy key; below 0 to take back."""
        self._used[key] += num_tokens

    def used(self, key: str) -> float:
        """The virtual time of a busy key, in tokens."""
        return self._used[key]

    def is_owed(self, key: str) -> bool:
        """Whether another key asks for more and has used no less.

        Args:
            key: a busy key.
        """
        used, num_requests = self._used[key], self._num_requests[key]
        return any(
            count > num_requests and self._used[other] >= used
            for other, count in self._num_requests.items()
        )

    def _catch_up(self) -> None:
        if self._num_requests:
            least = min(self._used[key] for key in self._num_requests)
            self._virtual_time = max(self._virtual_time, least)
