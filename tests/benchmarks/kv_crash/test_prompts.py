"""The prompts share beginnings, and fit the context."""

from __future__ import annotations

from benchmarks.kv_crash.prompts import prompts


def test_prompts_share_beginnings() -> None:
    texts = prompts()
    assert len(set(texts)) == len(texts)
    assert len({text[:100] for text in texts}) == 1
