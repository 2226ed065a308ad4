"""How long compiled code stood still between two steps, and when each step began.

Not here: what the steps computed (engine) and the counts of many gaps (trace.metrics).
"""

from __future__ import annotations

from firstword.batch import StepResult


class Gaps:
    """Follows the steps of an engine; times are seconds on its clock.

    Attributes:
        last_ms: see `Engine.gap_ms`.
    """

    def __init__(self) -> None:
        self.last_ms: float | None = None
        self._last_end = 0.0
        self._last_result_at: float | None = None  # None while nothing follows on it

    def span(self, given_at: float, now: float) -> tuple[float, float]:
        """When a step began and ended that was given to the runner at `given_at`, and is over."""
        # One that ran ahead was given to it before its turn came.
        start = max(given_at, self._last_end)
        self._last_end = now
        return start, now

    def measure(self, result: StepResult, now: float, *, has_more: bool) -> None:
        """A step gave a result; `has_more`: another follows."""
        before, self.last_ms = self._last_result_at, result.gap_ms
        self._last_result_at = now if has_more else None
        if self.last_ms is None and before is not None and result.native_ms is not None:
            self.last_ms = (now - before) * 1e3 - result.native_ms
