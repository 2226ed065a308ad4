"""The lines that checks print: what was asked for, what was measured; not how."""

from __future__ import annotations

from collections.abc import Sequence

from firstword.bench.serving.statistics import Distribution


class Report:
    """Prints a line for each finding and remembers those that fall short."""

    def __init__(self) -> None:
        self.num_missed = 0

    def say(self, text: str) -> None:
        """Something to know that no goal is set for."""
        print(f"        {text}", flush=True)

    def check(self, is_met: bool, text: str) -> None:
        """A goal, and what was found."""
        self.num_missed += not is_met
        print(f"{'ok' if is_met else 'MISSED':8}{text}", flush=True)


def milliseconds(seconds: Sequence[float]) -> str:
    """A distribution in words."""
    found = Distribution.of(seconds)
    if found is None:
        return "nothing measured"
    p50, p95, longest = (value * 1e3 for value in (found.p50, found.p95, found.max))
    return f"p50 {p50:.0f} ms, p95 {p95:.0f} ms, longest {longest:.0f} ms of {found.count}"
