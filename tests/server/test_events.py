"""Counts of tokens add up, and progress can be read."""

from __future__ import annotations

from firstword.engine.outputs import PromptProgress
from firstword.server.events import Progress, Usage


def test_usage_adds_field_by_field() -> None:
    assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)


def test_progress_in_words() -> None:
    waits, reads = PromptProgress(9, 0, 0, 3, 0.0), PromptProgress(9, 2, 5, 0, 0.25)
    assert Progress(waits).in_words() == "queued behind 3"
    assert Progress(reads).in_words() == "prefill 5/9 cached 2"
