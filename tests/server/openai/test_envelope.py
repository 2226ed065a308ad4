"""What answers carry beside their choices."""

from __future__ import annotations

import json

from firstword.engine.outputs import PromptProgress
from firstword.kvcache.sources import PromptSources
from firstword.server.events import Usage
from firstword.server.openai.envelope import (
    Envelope,
    progress_fields,
    usage_fields,
)
from firstword.trace.misses import ExplainedMiss


def test_ids_are_unique_and_prefixed() -> None:
    ids = {Envelope("cmpl", "a", "b", "m", "f").id for _ in range(100)}
    assert len(ids) == 100
    assert all(one.startswith("cmpl-") for one in ids)


def test_chunks_and_whole_answers_are_json() -> None:
    envelope = Envelope("cmpl", "whole", "chunk", 'm"🙂', "f", created=7)
    whole = json.loads(envelope.whole(choices=[]))
    assert (whole["object"], whole["model"], whole["created"]) == ("whole", 'm"🙂', 7)
    chunk = json.loads(envelope.chunk(x=1).removeprefix(b"data: "))
    assert (chunk["object"], chunk["choices"], chunk["x"]) == ("chunk", [], 1)
    head = json.loads(envelope.chunk_head().removeprefix(b"data: ") + b"]}")
    assert head["id"] == whole["id"]


def test_p30_usage_has_all_four_counts() -> None:
    fields = usage_fields(Usage(10, PromptSources(4), 6, 2))
    assert fields["total_tokens"] == 16
    assert fields["prompt_tokens_details"] == {
        "cached_tokens": 4,
        "cached_tokens_by_source": {"memory": 4, "disk": 0, "neighbour": 0},
        "computed_tokens": 6,
    }
    assert fields["completion_tokens_details"] == {"reasoning_tokens": 2}


def test_p02_p03_usage_tells_where_the_prompt_came_from_and_why_no_more_of_it() -> None:
    miss = ExplainedMiss("different_text", 9, 3, "It is", " 10:42", " 10:41")
    details = usage_fields(Usage(12, PromptSources(4, 3, 2), miss=miss))["prompt_tokens_details"]
    assert isinstance(details, dict)
    assert details["computed_tokens"] + sum(details["cached_tokens_by_source"].values()) == 12
    assert details["cache_miss"] == {
        "message": miss.in_words(),
        "cause": "different_text",
        "position": 9,
        "num_tokens": 3,
        "before": "It is",
        "text": " 10:42",
        "cached_text": " 10:41",
        "of_window": False,
    }


def test_progress_as_data() -> None:
    fields = progress_fields(PromptProgress(9, PromptSources(2), 5, 3, 0.25))
    assert fields == {"total": 9, "cache": 2, "processed": 5, "time_ms": 250, "ahead": 3}
