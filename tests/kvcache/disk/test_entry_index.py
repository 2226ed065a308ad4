"""The index finds what the entries say, and nothing that was forgotten."""

from __future__ import annotations

from dataclasses import replace

from firstword.kvcache.disk.entry_index import EntryIndex, Place
from firstword.kvcache.disk.record import StoredBlock, page_digest
from tests.kvcache.disk.blocks import LAYOUT, ROOT, blocks, chain

BLOCKS = blocks(4)


def entries(*those: StoredBlock) -> bytes:
    return b"".join(map(LAYOUT.pack, those))


def test_a_block_is_found_by_key_and_tokens() -> None:
    index = EntryIndex(LAYOUT)
    index.extend("s", 0, entries(*BLOCKS))
    found = index.find(BLOCKS[2].key, BLOCKS[2].token_ids)
    assert found is not None and found.place == Place("s", 2) == index.place(BLOCKS[2].key)
    assert found.digests == tuple(map(page_digest, BLOCKS[2].pages))
    assert len(index) == 4 and index.count("s") == 4 and index.segments == ["s"]


def test_the_key_of_other_tokens_is_a_miss() -> None:
    index = EntryIndex(LAYOUT)
    index.extend("s", 0, entries(BLOCKS[0]))
    assert not index.holds(BLOCKS[0].key, BLOCKS[1].token_ids)
    assert index.find(BLOCKS[0].key, BLOCKS[1].token_ids) is None
    assert index.find(BLOCKS[1].key, BLOCKS[1].token_ids) is None


def test_children_are_told_by_their_tokens() -> None:
    index = EntryIndex(LAYOUT)
    other = next(chain(seed=7))
    index.extend("s", 0, entries(*BLOCKS))
    index.extend("t", 0, entries(other))
    assert index.children(ROOT, 9) == [BLOCKS[0].token_ids, other.token_ids]
    assert index.children(ROOT, 1) == [other.token_ids]
    index.forget(BLOCKS[0].key)
    assert index.children(ROOT, 9) == [other.token_ids]
    index.forget(other.key)
    index.forget(other.key)
    assert index.children(ROOT, 9) == []


def test_what_was_taken_in_is_passed_over() -> None:
    index = EntryIndex(LAYOUT)
    index.extend("s", 0, entries(*BLOCKS[:2]))
    index.extend("s", 1, entries(*BLOCKS[1:3]))
    assert index.count("s") == 3
    place = index.place(BLOCKS[2].key)
    assert place == Place("s", 2)


def test_entries_behind_a_gap_wait() -> None:
    index = EntryIndex(LAYOUT)
    index.extend("s", 1, entries(BLOCKS[1]))
    assert index.count("s") == 0 and len(index) == 0


def test_damaged_entries_keep_their_place_and_name_nothing() -> None:
    index = EntryIndex(LAYOUT)
    index.extend("s", 0, entries(BLOCKS[0]) + bytes(LAYOUT.entry_bytes) + entries(BLOCKS[2]))
    assert len(index) == 2
    assert index.place(BLOCKS[2].key) == Place("s", 2)


def test_of_two_copies_the_last_counts_and_is_dropped_with_its_segment() -> None:
    index = EntryIndex(LAYOUT)
    index.extend("s", 0, entries(*BLOCKS))
    index.extend("t", 0, entries(replace(BLOCKS[0], pages=(b"x", b"y"))))
    assert index.place(BLOCKS[0].key) == Place("t", 0)
    assert index.children(ROOT, 9) == [BLOCKS[0].token_ids]
    index.drop("s")
    assert index.place(BLOCKS[0].key) == Place("t", 0) and len(index) == 1
    index.drop("t")
    index.drop("t")
    assert len(index) == 0 and index.children(ROOT, 9) == [] and index.segments == []
