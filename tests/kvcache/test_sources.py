from __future__ import annotations

from firstword.kvcache.sources import PromptSources


def test_all_sources_add_up() -> None:
    assert PromptSources().num_cached == 0
    assert PromptSources(memory=3, disk=4, neighbour=5).num_cached == 12
