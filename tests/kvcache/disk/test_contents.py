"""What is in the folder is found without being told, and what has left it is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from firstword.kvcache.disk.contents import StoreContents
from firstword.kvcache.disk.departures import record_departures
from firstword.kvcache.disk.record import RecordLayout
from firstword.kvcache.disk.segment import SegmentHeader, SegmentWriter, remove
from tests.kvcache.disk.blocks import LAYOUT, ROOT, blocks

BLOCKS = blocks(6)
HEADER = SegmentHeader.of(LAYOUT, 4)


def write(writer: SegmentWriter, first: int, end: int) -> None:
    for block in BLOCKS[first:end]:
        writer.append(LAYOUT.pack(block), block.pages)


def settled(folder: Path) -> None:
    """As if the folder had not changed for long."""
    then = time.time() - 60
    os.utime(folder, (then, then))


def num_held(contents: StoreContents) -> int:
    return sum(contents.holds(block.key, block.token_ids) for block in BLOCKS)


def test_growth_is_seen_where_the_folder_looks_the_same(tmp_path: Path) -> None:
    writer = SegmentWriter.create(tmp_path, HEADER)
    write(writer, 0, 1)
    contents = StoreContents(tmp_path, LAYOUT)
    settled(tmp_path)
    contents.refresh()
    assert num_held(contents) == len(contents) == 1
    contents.refresh()
    write(writer, 1, 4)
    contents.refresh()
    assert num_held(contents) == 4
    assert contents.children(ROOT, 9) == [BLOCKS[0].token_ids]
    writer.close()


def test_nothing_is_read_where_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter.create(tmp_path, HEADER)
    write(writer, 0, 2)
    contents = StoreContents(tmp_path, LAYOUT)
    settled(tmp_path)
    contents.refresh()
    monkeypatch.setattr("os.open", None)
    contents.refresh()
    assert num_held(contents) == 2
    writer.close()


def test_removed_segments_are_forgotten_and_why_is_known(tmp_path: Path) -> None:
    writer = SegmentWriter.create(tmp_path, HEADER)
    write(writer, 0, 2)
    contents = StoreContents(tmp_path, LAYOUT)
    contents.refresh()
    place = contents.place(BLOCKS[0].key)
    assert place is not None and place.segment == writer.path.stem
    remove(writer.path)
    record_departures(tmp_path, [BLOCKS[0].key], "expired")
    contents.refresh()
    assert len(contents) == 0 and contents.place(BLOCKS[0].key) is None
    assert contents.departure(BLOCKS[0].key) == "expired"
    assert contents.departure(BLOCKS[1].key) is None
    writer.close()


def test_what_the_writer_tells_is_not_taken_in_twice(tmp_path: Path) -> None:
    writer = SegmentWriter.create(tmp_path, HEADER)
    contents = StoreContents(tmp_path, LAYOUT)
    contents.refresh()
    write(writer, 0, 2)
    contents.refresh()
    contents.add(writer.path.stem, HEADER, 1, LAYOUT.pack(BLOCKS[1]))
    write(writer, 2, 3)
    contents.add(writer.path.stem, HEADER, 2, LAYOUT.pack(BLOCKS[2]))
    contents.refresh()
    found = contents.find(BLOCKS[2].key, BLOCKS[2].token_ids)
    assert found is not None and found.place.position == 2
    contents.forget(BLOCKS[2].key)
    contents.refresh()
    assert contents.find(BLOCKS[2].key, BLOCKS[2].token_ids) is None
    writer.close()


def test_segments_of_another_layout_are_passed_over(tmp_path: Path) -> None:
    writer = SegmentWriter.create(tmp_path, HEADER)
    write(writer, 0, 1)
    writer.close()
    (tmp_path / "x.idx").write_bytes(b"")
    contents = StoreContents(tmp_path, RecordLayout((50, 50), 8))
    contents.refresh()
    assert len(contents) == 0


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        StoreContents(tmp_path / "none", LAYOUT).refresh()
