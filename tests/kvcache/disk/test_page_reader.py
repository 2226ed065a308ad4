"""Pages come from the right place, and few files stay open."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstword.kvcache.disk.entry_index import Place
from firstword.kvcache.disk.page_reader import PageReader
from firstword.kvcache.disk.segment import SegmentHeader, SegmentWriter
from tests.kvcache.disk.blocks import LAYOUT, blocks, open_files


def test_pages_of_many_segments_with_few_files_open(tmp_path: Path) -> None:
    names = []
    for block in blocks(20):
        writer = SegmentWriter.create(tmp_path, SegmentHeader.of(LAYOUT, 1))
        writer.append(LAYOUT.pack(block), block.pages)
        writer.close()
        names.append(writer.path.stem)
    before = open_files()
    reader = PageReader(tmp_path, LAYOUT)
    for block, name in [*zip(blocks(20), names, strict=True)] * 2:
        assert reader.read(Place(name, 0), 1) == block.pages[1]
        assert reader.read(Place(name, 0), 0) == block.pages[0]
    assert len(open_files() - before) == 8
    assert reader.read(Place(names[0], 1), 0) == b""  # behind the end
    with pytest.raises(FileNotFoundError):
        reader.read(Place("none", 0), 0)
    reader.close()
    assert open_files() <= before
