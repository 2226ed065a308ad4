"""What is measured, as plain values. Not here: how (measure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from firstword.errors import ConfigError

CaseKind = Literal["prefill", "decode", "chat"]
CHAT_PROMPT, CHAT_ANSWER = 100, 500
"""Tokens of the chat that every report holds: a short question and a long answer."""


@dataclass(frozen=True)
class Case:
    """One thing to time.

    Args:
        kind: "prefill" reads prompts, "decode" writes answers, "chat" does both one after the
            other.
        num_tokens: tokens read or written by each sequence; of a chat, those written.
        depth: tokens of each sequence that are there before; of a chat, those read.
        batch: sequences at once.
    """

    kind: CaseKind
    num_tokens: int
    depth: int = 0
    batch: int = 1

    def __post_init__(self) -> None:
        for name, low in (("num_tokens", 1), ("depth", 0), ("batch", 1)):
            if getattr(self, name) < low:
                value = getattr(self, name)
                raise ConfigError(f"{name} of a benchmark is {value}: give at least {low}")

    @property
    def label(self) -> str:
        """The case in words, at most 26 characters for sizes below 100,000."""
        if self.kind == "chat":
            return f"chat {self.depth}+{self.num_tokens}"
        words = f"{self.kind} {self.num_tokens}"
        if self.depth:
            words += f" after {self.depth}"
        return f"{words} x{self.batch}" if self.batch > 1 else words

    @property
    def context(self) -> int:
        """Tokens of a sequence at the end, one more than were asked for included."""
        return self.depth + self.num_tokens + 2


@dataclass(frozen=True)
class Grid:
    """All combinations of some sizes.

    Args:
        prompts: tokens of prompts to read; may be empty.
        outputs: tokens to write; may be empty.
        depths: tokens there before.
        batches: sequences at once.
        chat: also a chat of 100 tokens in and 500 out.
    """

    prompts: Sequence[int]
    outputs: Sequence[int]
    depths: Sequence[int] = (0,)
    batches: Sequence[int] = (1,)
    chat: bool = False

    def cases(self) -> tuple[Case, ...]:
        """The cases in the order of the report.

        Raises:
            ConfigError: a size is too small, or there is no case at all.
        """
        phases: tuple[tuple[CaseKind, Sequence[int]], ...] = (
            ("prefill", self.prompts),
            ("decode", self.outputs),
        )
        found = [
            Case(kind, size, depth, batch)
            for kind, sizes in phases
            for size in sizes
            for depth in self.depths
            for batch in self.batches
        ]
        if self.chat:
            found.append(Case("chat", CHAT_ANSWER, CHAT_PROMPT))
        if not found:
            raise ConfigError("there is nothing to measure: give sizes of prompts or outputs")
        return tuple(found)
