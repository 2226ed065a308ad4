"""Whether a server is ending, and what still runs. Not here: signals and sockets (run)."""

from __future__ import annotations

import time


class Drain:
    """Running requests go on to their end, within a time; new ones are refused.

    Args:
        seconds: what running requests are given once it begins.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline: float | None = None
        self.num_running = 0
        """HTTP requests that are being answered; kept by whoever answers them."""

    @property
    def has_begun(self) -> bool:
        """Whether new requests are refused."""
        return self._deadline is not None

    def begin(self) -> None:
        """Refuse new requests from now on; beginning again changes nothing."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._seconds

    @property
    def seconds_left(self) -> float:
        """Time that running requests still have, at least 0."""
        if self._deadline is None:
            return self._seconds
        return max(0.0, self._deadline - time.monotonic())
