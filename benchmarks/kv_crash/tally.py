"""What many processes answered, added up; not what they were asked, and when they were killed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.kv_crash.damage import folder_bytes


@dataclass
class Tally:
    """Findings of one check.

    Args:
        num_answers: complete ones.
        num_disk: tokens of their prompts that came from the disk.
        num_wrong: answers that are not as they must be.
        num_failed: processes and requests that failed, though nobody killed them.
        num_beyond_cap: how often the disk held more than it may.
    """

    num_answers: int = 0
    num_disk: int = 0
    num_wrong: int = 0
    num_failed: int = 0
    num_beyond_cap: int = 0

    def __str__(self) -> str:
        return (
            f"{self.num_answers} answers with {self.num_disk:,} tokens from the disk, "
            f"{self.num_wrong} wrong, {self.num_failed} failed, "
            f"{self.num_beyond_cap} times beyond the cap"
        )

    @property
    def is_good(self) -> bool:
        """Whether there were answers, all of them right."""
        bad = self.num_wrong or self.num_failed or self.num_beyond_cap
        return self.num_answers > 0 and not bad

    def answer(self, is_right: bool, num_disk: int) -> None:
        """Count an answer."""
        self.num_answers += 1
        self.num_wrong += not is_right
        self.num_disk += num_disk

    def look_at(self, folder: Path, max_bytes: int) -> None:
        """Compare what a folder holds, and all below it, with what it may hold."""
        self.num_beyond_cap += folder_bytes(folder) > max_bytes
