"""One request and what came back, as a load test remembers it; not how it was sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True)
class Usage:
    """Tokens, as the server counts them.

    Args:
        prompt: tokens of the prompt, template included.
        cached: of these, how many the server had read before.
        completion: tokens of the answer.
    """

    prompt: int
    cached: int
    completion: int


@dataclass
class Exchange:
    """A request and its answer. Times are seconds of one clock.

    Args:
        group: which part of the load it belongs to.
        key: which API key it used, counted from 0.
        turn: of its conversation, counted from 0.
        started: when it was due.
        text_times: when each event with text arrived.
        ended: when the answer was complete; None where it never was.
        usage: None where the server did not say.
        text: of the answer.
        finish_reason: as the server calls it.
        error: kind of failure; None where there was none.
        detail: of the failure.
        left: whether the client went away, as it was meant to.
    """

    group: str
    key: int = 0
    turn: int = 0
    started: float = 0.0
    text_times: list[float] = field(default_factory=list)
    ended: float | None = None
    usage: Usage | None = None
    text: str = ""
    finish_reason: str | None = None
    error: str | None = None
    detail: str = ""
    left: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the answer came to its end without a failure."""
        return self.ended is not None and self.error is None

    @property
    def ttft(self) -> float | None:
        """Seconds to the first text, whatever the request waited for."""
        return self.text_times[0] - self.started if self.text_times else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between events with text (ITL)."""
        return [later - earlier for earlier, later in pairwise(self.text_times)]

    @property
    def e2e(self) -> float | None:
        """Seconds to the end of the answer."""
        return None if self.ended is None else self.ended - self.started

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first; None where that is not known."""
        if self.usage is None or self.usage.completion < 2:
            return None
        if self.e2e is None or self.ttft is None:
            return None
        return (self.e2e - self.ttft) / (self.usage.completion - 1)
