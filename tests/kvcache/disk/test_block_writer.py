"""Writing goes from segment to segment, stays in the cap, and a failure is a pause."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

import pytest

from firstword.kvcache.disk.block_writer import PAUSE_SECONDS, BlockWriter
from firstword.kvcache.disk.contents import StoreContents
from firstword.kvcache.disk.home import KVHome
from firstword.kvcache.disk.segment import HEADER_BYTES, remove
from tests.kvcache.disk.blocks import IDENTITY, LAYOUT, blocks, disk_bytes, files

BLOCKS = blocks(150)
CAP = 16 * 4096
real_pwritev = os.pwritev


@pytest.fixture
def home(tmp_path: Path) -> KVHome:
    return KVHome(tmp_path / "kv")


def writer_of(home: KVHome, max_bytes: int = CAP) -> tuple[BlockWriter, StoreContents]:
    contents = StoreContents(home.path / IDENTITY.digest.hex(), LAYOUT)
    return BlockWriter(home, IDENTITY, contents, max_bytes), contents


class FullDisk:
    """A disk that has room for so many bytes and no more."""

    def __init__(self, free: int, error: int = errno.ENOSPC) -> None:
        self.free, self.error = free, error

    def pwritev(self, fd: int, parts: Sequence[bytes], offset: int) -> int:
        data = b"".join(parts)[: self.free]
        if not data:
            raise OSError(self.error, os.strerror(self.error))
        self.free -= len(data)
        return real_pwritev(fd, [data], offset)


def test_blocks_are_told_at_once(home: KVHome) -> None:
    writer, contents = writer_of(home)
    assert writer.is_ready and writer.write(BLOCKS[0])
    assert contents.holds(BLOCKS[0].key, BLOCKS[0].token_ids)
    writer.close()


def test_the_cap_is_never_passed_and_the_newest_are_there(home: KVHome) -> None:
    writer, contents = writer_of(home)
    for block in BLOCKS:
        assert writer.write(block)
        assert disk_bytes(home.path) <= CAP
    held = [contents.holds(block.key, block.token_ids) for block in BLOCKS]
    assert held[-30:] == [True] * 30 and not held[0]
    assert contents.departure(BLOCKS[0].key) == "evicted"
    assert len(files(home.path, ".idx")) > 1
    writer.close()


def test_a_cap_below_one_block_writes_nothing(home: KVHome) -> None:
    writer, _ = writer_of(home, 8000)
    assert not writer.fits_cap and not writer.is_ready
    assert not writer.write(BLOCKS[0])
    assert not home.path.exists()


def test_where_others_hold_the_cap_nothing_is_written(home: KVHome) -> None:
    first, _ = writer_of(home, 4 * 4096)
    assert first.write(BLOCKS[0])
    second, contents = writer_of(home, 4 * 4096)
    assert not second.write(BLOCKS[1]) and len(contents) == 1
    assert second.num_failed == 1 and not second.is_ready
    first.close()


def test_a_cleared_segment_is_begun_anew(home: KVHome) -> None:
    writer, contents = writer_of(home)
    assert writer.write(BLOCKS[0])
    home.clear()
    assert writer.write(BLOCKS[1])
    assert not contents.holds(BLOCKS[0].key, BLOCKS[0].token_ids)
    assert contents.holds(BLOCKS[1].key, BLOCKS[1].token_ids)
    writer.close()


def num_fitting(free: int) -> int:
    """Blocks of five for which there is room."""
    each = LAYOUT.record_bytes + LAYOUT.entry_bytes
    return min(max(free - HEADER_BYTES, 0) // each, 5)


@pytest.mark.parametrize("free", range(0, 700, 13))
def test_a_disk_full_at_any_byte_leaves_whole_blocks(
    home: KVHome, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    monkeypatch.setattr("os.pwritev", FullDisk(free).pwritev)
    writer, _ = writer_of(home)
    written = [writer.write(block) for block in BLOCKS[:5]]
    assert written == sorted(written, reverse=True)  # after a failure there is a pause
    writer.close()
    contents = StoreContents(home.path / IDENTITY.digest.hex(), LAYOUT)
    contents.refresh()
    assert len(contents) == sum(written) == num_fitting(free)


def test_a_full_disk_gives_back_what_was_used_least(
    home: KVHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, contents = writer_of(home)
    while len(files(home.path, ".idx")) < 3:
        assert writer.write(BLOCKS[len(contents)])
    disk = FullDisk(0)
    monkeypatch.setattr("os.pwritev", disk.pwritev)
    monkeypatch.setattr("firstword.kvcache.disk.home.remove", RemovalFrees(disk))
    next_block = BLOCKS[-1]
    assert writer.write(next_block)
    assert contents.holds(next_block.key, next_block.token_ids)
    assert contents.departure(BLOCKS[0].key) == "evicted"
    writer.close()


class RemovalFrees:
    """Removes a segment, and a full disk has room again."""

    def __init__(self, disk: FullDisk) -> None:
        self.disk = disk

    def __call__(self, path: Path) -> None:
        remove(path)
        self.disk.free += 10_000


def test_a_failure_is_a_pause_and_then_it_goes_on(
    home: KVHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, _ = writer_of(home)
    with monkeypatch.context() as patch:
        patch.setattr("os.pwritev", FullDisk(0, errno.EIO).pwritev)
        assert not writer.write(BLOCKS[0])
    assert not writer.is_ready and not writer.write(BLOCKS[0])
    later = time.monotonic() + PAUSE_SECONDS
    monkeypatch.setattr("time.monotonic", lambda: later)
    assert writer.is_ready and writer.write(BLOCKS[0])
    assert writer.num_failed == 1
    writer.close()


def test_after_closing_nothing_is_written(home: KVHome) -> None:
    writer, _ = writer_of(home)
    assert writer.write(BLOCKS[0])
    writer.close()
    writer.close()
    assert not writer.is_ready and not writer.write(BLOCKS[1])


def test_closing_waits_for_no_disk_that_hangs(
    home: KVHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firstword.kvcache.disk.block_writer._CLOSE_SECONDS", 0)
    writer, contents = writer_of(home)
    writing, goes_on = Event(), Event()

    def hang(fd: int, parts: Sequence[bytes], offset: int) -> int:
        writing.set()
        goes_on.wait(10)
        return real_pwritev(fd, parts, offset)

    monkeypatch.setattr("os.pwritev", hang)
    thread = Thread(target=writer.write, args=(BLOCKS[0],))
    thread.start()
    assert writing.wait(10)
    writer.close()
    goes_on.set()
    thread.join()
    assert len(contents) == 1
    monkeypatch.setattr("firstword.kvcache.disk.block_writer._CLOSE_SECONDS", 1)
    writer.close()
