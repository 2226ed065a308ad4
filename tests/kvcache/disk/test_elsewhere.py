"""The beginnings of other stores' texts."""

from __future__ import annotations

from pathlib import Path

from firstword.kvcache.disk.elsewhere import first_blocks
from firstword.kvcache.disk.record import StoredBlock, pack_tokens
from firstword.kvcache.disk.segment import SegmentHeader, SegmentWriter
from tests.kvcache.disk.blocks import LAYOUT, blocks


def write(folder: Path, *these: StoredBlock) -> None:
    writer = SegmentWriter.create(folder, SegmentHeader.of(LAYOUT, 10))
    for block in these:
        writer.append(LAYOUT.pack(block), block.pages)
    writer.close()


def test_only_blocks_without_a_parent_begin_a_text(tmp_path: Path) -> None:
    one, other = blocks(3), blocks(2, seed=5)
    write(tmp_path, *one[1:])
    write(tmp_path, one[0], *other)
    (tmp_path / "x.idx").write_bytes(b"nothing")
    (tmp_path / "y.idx").symlink_to("nowhere")
    first = {pack_tokens(one[0].token_ids), pack_tokens(other[0].token_ids)}
    assert first_blocks([tmp_path, tmp_path / "none"]) == first
