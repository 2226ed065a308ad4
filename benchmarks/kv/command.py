"""`firstword run` as benchmarks start it, and what it says of the prompt; not when it is killed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_CACHED = re.compile(r"\((\d[\d,]*) cached")


def run_command(model: Path, max_tokens: int, threads: int, *flags: str) -> list[str]:
    """The command that continues the text of its input greedily, and says what that took.

    Args:
        model: the file.
        max_tokens: of the answer.
        threads: to compute with.
        flags: further ones.
    """
    return [
        sys.executable, "-m", "firstword", "run", "-m", str(model), "--raw", "--stats",
        "--temperature", "0", "--max-tokens", str(max_tokens), "--threads", str(threads),
        *flags, "-",
    ]  # fmt: skip


def num_cached_tokens(said: str) -> int | None:
    """Tokens of the prompt that were not computed, by the command's standard error.

    Returns:
        None where it tells nothing of that.
    """
    found = _CACHED.search(said)
    return None if found is None else int(found[1].replace(",", ""))
