"""A cache miss for people: its cause in words, and both texts.

Not here: how the cause is found out (kvcache.misses).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

NUM_TOKENS_BEFORE = 8
"""Tokens of the prompt that are told before the place of the miss."""


class Miss(Protocol):
    """What was found out; see kvcache.sources.CacheMiss for each field."""

    @property
    def cause(self) -> str:
        """In one word."""

    @property
    def position(self) -> int:
        """First token that was not reused for it."""

    @property
    def num_tokens(self) -> int:
        """Tokens from there on that were computed for it."""

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Of the prompt, from there on."""

    @property
    def cached_token_ids(self) -> tuple[int, ...]:
        """Of the nearest cached text, in their place."""

    @property
    def of_window(self) -> bool:
        """Whether only layers with a window lacked it."""


@dataclass(frozen=True)
class ExplainedMiss:
    """Why a prompt was not reused further, with the texts around the place.

    Args:
        cause: different_text, too_short, evicted, expired or other_settings.
        position: the first token that was not reused for it.
        num_tokens: tokens from there on that were computed for it.
        before: text of the prompt before that token.
        text: text of the prompt from there on, a few tokens.
        cached_text: what the nearest cached prompt has in its place; empty where that is not the
            cause, or may not be told.
        of_window: only the layers with a sliding window lacked it.
    """

    cause: str
    position: int
    num_tokens: int
    before: str
    text: str
    cached_text: str
    of_window: bool = False

    def in_words(self) -> str:
        """One sentence, without a full stop."""
        tokens = f"{self.num_tokens:,} token{'' if self.num_tokens == 1 else 's'}"
        if self.cause == "different_text":
            cached = f"cached: {self.cached_text!r}, " if self.cached_text else ""
            place = f"token {self.position:,}" + (f", after {self.before!r}" if self.before else "")
            return (
                f"prompt differs from the nearest cached one at {place} "
                f"({cached}now: {self.text!r}): {tokens} read"
            )
        return f"{tokens} from token {self.position:,} on {self._why()}"

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON, the sentence among them as `message`."""
        return {"message": self.in_words(), **asdict(self)}

    def _why(self) -> str:
        if self.cause == "evicted" and self.of_window:
            return (
                "are cached but for the layers with a window, whose part gave way to other text: "
                "read again"
            )
        return {
            "too_short": "are cached, too few to be reused or to be worth loading: read again",
            "evicted": "were cached and gave way to other text: read again",
            "expired": "were on disk and not used for too long: read again",
            "other_settings": "may be cached for another model or other settings: read for these",
        }[self.cause]


def explained(
    miss: Miss, prompt: Sequence[int], text_of: Callable[[Sequence[int]], str]
) -> ExplainedMiss:
    """Put texts in the place of tokens.

    Args:
        miss: what was found out.
        prompt: its tokens; empty where they are not known.
        text_of: text of tokens, for display.
    """
    start = max(0, miss.position - NUM_TOKENS_BEFORE)
    return ExplainedMiss(
        cause=miss.cause,
        position=miss.position,
        num_tokens=miss.num_tokens,
        before=text_of(prompt[start : miss.position]),
        text=text_of(miss.token_ids),
        cached_text=text_of(miss.cached_token_ids),
        of_window=miss.of_window,
    )
