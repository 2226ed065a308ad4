"""What is written and what is expected come from the same key, and a difference shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

from benchmarks.kv_crash.blocks import examine, open_store, pages_of, text


def test_a_text_is_the_same_each_time() -> None:
    assert list(islice(text(3), 2)) == list(islice(text(3), 2))
    assert next(text(3)).key != next(text(4)).key


def test_wrong_pages_are_counted(tmp_path: Path) -> None:
    first, second = islice(text(0), 2)
    assert first.pages == pages_of(first.key)
    store = open_store(tmp_path)
    assert store.append(first)
    assert store.append(replace(second, pages=first.pages))  # a store that mixes them up
    store.close()
    found = examine(tmp_path, [first, second])
    assert (found.num_kept, found.num_wrong) == (2, 1) and found.num_bytes > 64_000
