"""What each key has used of the engine, so that keys are served alike however much they ask for.

Not here: who of a key goes first (line) and how large a chunk is (policy).

Start-time fair queueing (Goyal, Vin, Cheng 1996) with tokens for service: each key has a virtual
time, the tokens computed and generated for it, and the one with the least is served next. A key
that comes back from idleness starts where the least of the busy ones is, so it has saved nothing
up; one that has used more than that keeps its debt until the others have caught up.
"""

from __future__ import annotations

from collections.abc import Mapping

_OWED_TOKENS = 256
"""Tokens that a key may be ahead of one with more sequences and still count as behind it."""

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
            self._used[key] = max(self._used.get(key, 0.0), self._virtual_time)
        self._num_requests[key] = self._num_requests.get(key, 0) + 1

    def leave(self, key: str) -> None:
        """Note that a request of `key` ended."""
        self._num_requests[key] -= 1
        if self._num_requests[key]:
            return
        self._catch_up()
        del self._num_requests[key]
        if self._used[key] <= self._virtual_time or len(self._used) > _REMEMBERED_KEYS:
            del self._used[key]

    def charge(self, key: str, num_tokens: float) -> None:
        """Note that `num_tokens` are computed or generated for a busy key; below 0 to take back."""
        self._used[key] += num_tokens

    def used(self, key: str) -> float:
        """The virtual time of a busy key, in tokens."""
        return self._used[key]

    def is_owed(self, key: str, num_running: Mapping[str, int]) -> bool:
        """Whether another key runs more sequences and has, but for a few tokens, used no less.

        Args:
            key: a busy key.
            num_running: running sequences by key.
        """
        used, seats = self._used[key], max(num_running.get(key, 0), 1)
        return any(
            count > seats and used <= self._used[other] + _OWED_TOKENS
            for other, count in num_running.items()
            if other != key
        )

    def _catch_up(self) -> None:
        if self._num_requests:
            least = min(self._used[key] for key in self._num_requests)
            self._virtual_time = max(self._virtual_time, least)
