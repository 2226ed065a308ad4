"""Where the keys and values of a prompt came from, and why the rest had to be computed: values.

Not here: how a prefix is found (prefix_cache) and how a cause is found out (misses).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

MissCause = Literal["different_text", "too_short", "evicted", "expired", "other_settings"]


class PromptSources(NamedTuple):
    """Tokens of a prompt that were not computed for it, by where their keys and values came from.

    Args:
        memory: blocks that were in the pool when its turn came.
        disk: blocks that were loaded for it.
        neighbour: blocks that it waited for while another request computed them.
    """

    memory: int = 0
    disk: int = 0
    neighbour: int = 0

    @property
    def num_cached(self) -> int:
        """All of them; the rest of the prompt was computed."""
        return self.memory + self.disk + self.neighbour

    def plus(self, other: PromptSources) -> PromptSources:
        """Those of two prompts together."""
        return PromptSources(*map(sum, zip(self, other, strict=True)))


Wait = tuple[int, Literal["disk", "neighbour"]]
"""A sequence waited for what follows on so many tokens: to be loaded, or computed by another."""


def split_by_source(num_cached: int, waits: Sequence[Wait]) -> PromptSources:
    """Say where the tokens came from that a sequence found when it started.

    Args:
        num_cached: how many they are.
        waits: what it had waited for, in the order of time. What was there before the first is
            from memory, and each brought what was there more at the next one, or in the end.
    """
    counts = {"memory": 0, "disk": 0, "neighbour": 0}
    borders = [*(min(position, num_cached) for position, _ in waits), num_cached]
    counts["memory"] = borders[0]
    for (_, source), start, end in zip(waits, borders, borders[1:], strict=False):
        counts[source] += end - start
    return PromptSources(**counts)


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """Why a prompt was not reused further than it was.

    There is none where everything like it was reused: a prompt that goes on where an earlier text
    ends has missed nothing.

    Args:
        cause: "different_text": the nearest cached text goes on differently; "too_short": what is
            shared beyond is less than can be reused, or than is worth loading; "evicted": it was
            kept, and gave way to other text; "expired": it was kept on the disk, unused, for
            longer than the limit; "other_settings": the same text is kept, of another model or
            with other settings.
        position: the first token that was not reused for this cause.
        num_tokens: how many from there on were computed for it.
        token_ids: of the prompt from there on, a few.
        cached_token_ids: what the nearest cached text has in their place; empty where the cause
            is another, or where it may be somebody else's text.
        of_window: with "evicted": layers of full attention still have it, and only those with a
            sliding window lack what they need to go on there.
    """

    cause: MissCause
    position: int
    num_tokens: int
    token_ids: tuple[int, ...] = ()
    cached_token_ids: tuple[int, ...] = ()
    of_window: bool = False
