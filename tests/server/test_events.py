"""Counts of tokens add up, and progress can be read."""

from __future__ import annotations

from firstword.engine.outputs import PromptProgress
from firstword.kvcache.sources import PromptSources
from firstword.server.events import Progress, Usage
from firstword.trace.misses import ExplainedMiss


def test_usage_adds_field_by_field() -> None:
    miss = ExplainedMiss("evicted", 0, 32, "", "It", "")
    first = Usage(1, PromptSources(2, 1, 0), 3, 4, 5)
    second = Usage(10, PromptSources(20, 0, 5), 30, 40, 50, miss)
    assert first + second == Usage(11, PromptSources(22, 1, 5), 33, 44, 55, miss)
    assert (first + second).cached == 28


def test_progress_in_words() -> None:
    waits = PromptProgress(9, PromptSources(), 0, 3, 0.0)
    reads = PromptProgress(9, PromptSources(2), 5, 0, 0.25)
    assert Progress(waits).in_words() == "queued behind 3"
    assert Progress(reads).in_words() == "prefill 5/9 cached 2"
