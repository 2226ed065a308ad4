"""What the figures have to show; one line each, with its goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.serving.compare import Results

OURS = "firstword"
PEER = "llama.cpp"
ENGINE = "firstword bench"
"""The engine without a server, as an entry beside the servers."""


@dataclass(frozen=True)
class Check:
    """A goal: the ratio or the figure of an experiment, at least or at most so much.

    Args:
        text: the goal in words.
        experiment: by name.
        figure: of it.
        goal: the bound.
        at_least: whether it is a lower bound.
        over: the server whose figure ours is divided by; empty to take ours as it is.
    """

    text: str
    experiment: str
    figure: str
    goal: float
    at_least: bool = False
    over: str = ""

    def value(self, results: Results) -> float | None:
        """What was measured; None where something is missing."""
        ours = results.medians(self.experiment, OURS).get(self.figure)
        if not self.over or ours is None:
            return ours
        other = results.medians(self.experiment, self.over).get(self.figure)
        return ours / other if other else None

    def is_met(self, value: float) -> bool:
        """Whether a value reaches the goal."""
        return value >= self.goal if self.at_least else value <= self.goal


def _at_most(text: str, experiment: str, figure: str, goal: float) -> Check:
    return Check(text, experiment, figure, goal)


CHECKS: Sequence[Check] = (
    Check("16 clients: tokens/s over llama-server's", "many", "tokens_per_second", 4, True, PEER),
    Check("16 clients: median TTFT over llama-server's", "many", "ttft_p50", 1 / 3, False, PEER),
    Check("16 clients: tokens/s over the engine's", "many", "tokens_per_second", 0.9, True, ENGINE),
    _at_most("second request's TTFT over the first's", "prefix-once", "ratio", 0.2),
    _at_most("16 cold clients: TTFT p50, shared over distinct", "prefix-many", "ratio", 0.4),
    _at_most("chats beside a long prompt: ITL p95 over alone", "long-prompt", "itl_p95_ratio", 2),
    _at_most("chats beside a long prompt: ITL p99 over alone", "long-prompt", "itl_p99_ratio", 4),
    _at_most(
        "chats beside a long prompt: longest ITL over alone", "long-prompt", "itl_max_ratio", 4
    ),
    _at_most("long prompt beside chats: TTFT over alone", "long-prompt", "long_ttft_ratio", 3),
    _at_most("one key beside another's flood: TTFT over alone", "two-keys", "ratio", 2),
)
