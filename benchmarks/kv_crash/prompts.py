"""What engines and commands are asked, and how much of it the disk may hold."""

from __future__ import annotations

_SYSTEM = (
    "You are the keeper of a lighthouse on a small island. You write down the weather, the ships "
    "that pass and the birds that rest on the rocks, and you answer every letter that comes. "
)
NUM_PROMPTS = 6
MAX_TOKENS = 8
"""Of each answer."""

CONTEXT = 1024
"""In tokens; every prompt and its answer fit."""

MAX_DISK_BYTES = 48 * 10**6
"""Some of the prompts must give way."""


def prompts() -> list[str]:
    """Texts that share beginnings, of some hundred tokens."""
    return [_SYSTEM * (2 + i // 2) + f"Letter {i}: how was the night?" for i in range(NUM_PROMPTS)]
