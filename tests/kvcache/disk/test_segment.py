"""A segment gives back whole blocks or none, whatever was cut, locked or removed."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from firstword.kvcache.disk.segment import (
    HEADER_BYTES,
    SegmentHeader,
    SegmentWriter,
    is_live,
    open_pages,
    read_entries,
    remove,
    strike,
)
from tests.kvcache.disk.blocks import LAYOUT, PAGE_BYTES, blocks

HEADER = SegmentHeader.of(LAYOUT, 3)
BLOCKS = blocks(3)


def written(folder: Path, number: int, header: SegmentHeader = HEADER) -> Path:
    """A segment that was left with some blocks."""
    writer = SegmentWriter.create(folder, header)
    for block in BLOCKS[:number]:
        writer.append(LAYOUT.pack(block), block.pages)
    writer.close()
    return writer.path


def keys(path: Path, start: int = 0) -> list[bytes | None]:
    read = read_entries(path, start)
    assert read is not None
    return [None if names is None else names[0] for names in LAYOUT.keys(read[1])]


def test_entries_and_pages_come_back(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    assert keys(path) == [block.key for block in BLOCKS]
    assert keys(path, start=2) == [BLOCKS[2].key]
    assert keys(path, start=4) == []
    assert path.with_suffix(".kv").read_bytes() == b"".join(p for b in BLOCKS for p in b.pages)
    assert path.stat().st_size + path.with_suffix(".kv").stat().st_size == HEADER.num_bytes(3)


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = written(tmp_path, 1)
    for file in (path, path.with_suffix(".kv")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_header_is_that_or_nothing() -> None:
    data = HEADER.pack()
    assert len(data) == HEADER_BYTES
    assert SegmentHeader.unpack(data) == HEADER
    assert SegmentHeader.unpack(data[:-1]) is None
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert SegmentHeader.unpack(bytes(damaged)) is None


def test_what_is_no_segment_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "x.idx"
    path.write_bytes(b"notes")
    assert read_entries(path) is None


def test_one_process_writes_and_its_lock_ends_with_it(tmp_path: Path) -> None:
    writer = SegmentWriter.create(tmp_path, HEADER)
    writer.append(LAYOUT.pack(BLOCKS[0]), BLOCKS[0].pages)
    assert is_live(writer.path)
    assert SegmentWriter.adopt(writer.path, HEADER) is None
    writer.close()
    assert not is_live(writer.path)


def test_an_unfinished_segment_is_gone_on_with(tmp_path: Path) -> None:
    path = written(tmp_path, 1)
    with path.open("ab") as file:
        file.write(b"half an entry")
    with path.with_suffix(".kv").open("ab") as file:
        file.write(b"half a page")
    writer = SegmentWriter.adopt(path, HEADER)
    assert writer is not None and writer.count == 1 and not writer.is_full
    for block in BLOCKS[1:]:
        writer.append(LAYOUT.pack(block), block.pages)
    assert writer.is_full
    writer.close()
    assert keys(path) == [block.key for block in BLOCKS]
    assert SegmentWriter.adopt(path, HEADER) is None  # it is full


def test_only_a_sound_segment_of_the_same_layout_is_gone_on_with(tmp_path: Path) -> None:
    path = written(tmp_path, 2)
    assert SegmentWriter.adopt(path, SegmentHeader(3, 100, 4, 1)) is None
    os.truncate(path.with_suffix(".kv"), 10)
    assert SegmentWriter.adopt(path, HEADER) is None
    path.write_bytes(b"")
    assert SegmentWriter.adopt(path, HEADER) is None
    path.with_suffix(".kv").unlink()
    path.write_bytes(HEADER.pack())
    with pytest.raises(FileNotFoundError):
        SegmentWriter.adopt(path, HEADER)
    assert not is_live(path)  # nothing was left open


@pytest.mark.parametrize("cut", range(1, 2 * LAYOUT.entry_bytes, 7))
def test_half_an_entry_is_none(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, 3)
    os.truncate(path, path.stat().st_size - cut)
    assert keys(path) == [block.key for block in BLOCKS[: 3 - -(-cut // LAYOUT.entry_bytes)]]


def test_an_entry_without_its_pages_is_none(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    os.truncate(path.with_suffix(".kv"), 3 * LAYOUT.record_bytes - 1)
    assert keys(path) == [block.key for block in BLOCKS[:2]]


def test_a_failed_write_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter.create(tmp_path, HEADER)
    writer.append(LAYOUT.pack(BLOCKS[0]), BLOCKS[0].pages)
    with monkeypatch.context() as patch:
        patch.setattr("os.pwritev", lambda fd, parts, offset: os.pwrite(fd, parts[0][:5], offset))
        with pytest.raises(OSError, match="No space"):
            writer.append(LAYOUT.pack(BLOCKS[1]), BLOCKS[1].pages)
    writer.cut()
    assert writer.path.with_suffix(".kv").stat().st_size == LAYOUT.record_bytes
    writer.append(LAYOUT.pack(BLOCKS[2]), BLOCKS[2].pages)
    writer.close()
    assert keys(writer.path) == [BLOCKS[0].key, BLOCKS[2].key]


def test_a_segment_that_cannot_be_begun_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, parts: Sequence[bytes], offset: int) -> int:
        return 0

    monkeypatch.setattr("os.pwritev", full)
    with pytest.raises(OSError, match="No space"):
        SegmentWriter.create(tmp_path, HEADER)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_segment_is_not_left_behind(tmp_path: Path) -> None:
    assert not written(tmp_path, 0).exists()
    assert list(tmp_path.iterdir()) == []


def test_removal_frees_the_space_of_who_still_reads(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    fd = open_pages(path)
    remove(path)
    remove(path)  # once more is no error
    assert os.fstat(fd).st_blocks == 0
    os.close(fd)
    assert list(tmp_path.iterdir()) == []


def test_a_writer_sees_that_its_segment_is_gone(tmp_path: Path) -> None:
    writer = SegmentWriter.create(tmp_path, HEADER)
    assert not writer.is_gone
    remove(writer.path)
    assert writer.is_gone
    writer.close()


def test_a_struck_entry_is_damaged_for_all(tmp_path: Path) -> None:
    path = written(tmp_path, 3)
    os.utime(path, (1000, 1000))
    strike(path, LAYOUT.entry_bytes, 1)
    assert keys(path) == [BLOCKS[0].key, None, BLOCKS[2].key]
    assert path.stat().st_mtime == 1000  # that was no use of it
    strike(path, LAYOUT.entry_bytes, 3)  # not there any more
    assert len(keys(path)) == 3


def test_a_symlink_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = tmp_path / "0.idx"
    path.symlink_to(written(elsewhere, 2))
    with pytest.raises(OSError, match="symbolic"):
        read_entries(path)


def test_sizes_are_those_of_the_layout() -> None:
    assert HEADER.entry_bytes == LAYOUT.entry_bytes
    assert HEADER.record_bytes == sum(PAGE_BYTES)
