"""The beginnings of other stores' texts."""

from __future__ import annotations

from pathlib import Path

from firstword.kvcache.block_pool import root_key
from firstword.kvcache.disk.elsewhere import first_blocks
from firstword.kvcache.disk.record import StoredBlock, pack_tokens
from firstword.kvcache.disk.segment import SegmentHeader, SegmentWriter
from tests.kvcache.disk.blocks import IDENTITY, LAYOUT, blocks, chain


def write(folder: Path, *these: StoredBlock) -> None:
    writer = SegmentWriter.create(folder, SegmentHeader.of(LAYOUT, 10))
    for block in these:
        writer.append(LAYOUT.pack(block), block.pages)
    writer.close()


def test_only_blocks_without_a_parent_begin_a_text(tmp_path: Path) -> None:
    one, other = blocks(3), blocks(2, seed=5)
    folder = tmp_path / IDENTITY.fingerprint
    folder.mkdir()
    write(folder, *one[1:])
    write(folder, one[0], *other)
    (folder / "x.idx").write_bytes(b"nothing")
    (folder / "y.idx").symlink_to("nowhere")
    first = {pack_tokens(one[0].token_ids), pack_tokens(other[0].token_ids)}
    assert first_blocks([folder, tmp_path / "none"]) == first


def test_text_under_a_salt_is_not_told_of(tmp_path: Path) -> None:
    folder = tmp_path / IDENTITY.fingerprint
    folder.mkdir()
    secret = next(chain(7, parent=root_key(IDENTITY.fingerprint.encode(), "my own")))
    write(folder, secret, *blocks(2))
    assert first_blocks([folder]) == {pack_tokens(blocks(1)[0].token_ids)}
