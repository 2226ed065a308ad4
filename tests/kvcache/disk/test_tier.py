"""The threads between pool and store: what is copied, read, counted, and how they end."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firstword.kvcache.disk import tier as tier_module
from firstword.kvcache.disk.tier import NOMINAL_BYTES_PER_SECOND, DiskTier, PageSizes
from firstword.kvcache.tier import BlockName, BlockRead, FinishedLoad
from tests.kvcache.disk.blocks import PAGE_BYTES, blocks, files, store_of

POOL_BYTES = 64  # more than either group uses
BLOCKS = blocks(4)
NAMES = [BlockName(block.key, block.parent, block.token_ids) for block in BLOCKS]


class PageList:
    """Pages of a pool."""

    def __init__(self, number: int = 16) -> None:
        self.pages = [bytes(POOL_BYTES)] * number

    def read_block(self, block: int) -> bytes:
        return self.pages[block]

    def write_block(self, block: int, content: bytes) -> None:
        assert len(content) == POOL_BYTES
        self.pages[block] = content


def tier_of(home: Path, pages: PageList) -> DiskTier:
    return DiskTier(store_of(home), pages, PageSizes(PAGE_BYTES, POOL_BYTES))


def put(pages: PageList, index: int) -> list[int]:
    """Put the content of a block into the pool; returns its pages."""
    where = [2 * index, 2 * index + 1]
    for block, content in zip(where, BLOCKS[index].pages, strict=True):
        pages.pages[block] = content.ljust(POOL_BYTES, b"x")
    return where


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.005)
    raise AssertionError("it never came")


def load(tier: DiskTier, reads: list[BlockRead]) -> FinishedLoad:
    """Run a load to its end."""
    tier.load(7, reads)
    for _ in range(2000):
        tier.wait(0.005)
        if finished := tier.finished_loads():
            return finished[0]
    raise AssertionError("it never ended")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder in which a first process has kept two blocks."""
    pages = PageList()
    tier = tier_of(tmp_path / "kv", pages)
    for index in (0, 1):
        assert tier.save(NAMES[index], put(pages, index))
        pages.pages = [b"?" * POOL_BYTES] * 16  # what is written was copied before
    tier.close()
    return tmp_path / "kv"


def test_blocks_come_back_into_the_pages_that_were_named(home: Path) -> None:
    pages = PageList()
    tier = tier_of(home, pages)
    assert tier.holds(NAMES[0].key, NAMES[0].token_ids)
    assert list(tier.children(NAMES[0].key, 9)) == [NAMES[1].token_ids]
    reads = [BlockRead(NAMES[0], ((0, 5), (1, 6))), BlockRead(NAMES[1], ((1, 9),))]
    assert load(tier, reads) == FinishedLoad(7, 2)
    assert pages.pages[5] == BLOCKS[0].pages[0].ljust(POOL_BYTES, b"\0")
    assert pages.pages[6] == BLOCKS[0].pages[1].ljust(POOL_BYTES, b"\0")
    assert pages.pages[9] == BLOCKS[1].pages[1].ljust(POOL_BYTES, b"\0")
    assert {i for i, page in enumerate(pages.pages) if any(page)} == {5, 6, 9}
    assert tier.bytes_per_second != NOMINAL_BYTES_PER_SECOND
    tier.close()


def test_a_block_that_is_used_from_memory_stays_longer(home: Path) -> None:
    tier = tier_of(home, PageList())
    (entries,) = files(home, ".idx")
    os.utime(entries, (0, 0))
    tier.touch(b"unknown")
    assert entries.stat().st_mtime == 0
    tier.touch(NAMES[1].key)
    assert entries.stat().st_mtime > 0
    tier.close()


def test_a_load_ends_at_the_first_block_that_is_not_there(home: Path) -> None:
    pages = PageList()
    tier = tier_of(home, pages)
    reads = [BlockRead(NAMES[i], ((0, i),)) for i in (0, 2, 1)]
    assert load(tier, reads) == FinishedLoad(7, 1)
    assert not any(pages.pages[1]) and not any(pages.pages[2])
    tier.close()


def test_a_reader_that_fails_still_ends_its_load(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tier = tier_of(home, PageList())
    monkeypatch.setattr(tier.store, "read", lambda *_: 1 / 0)
    assert load(tier, [BlockRead(NAMES[0], ((0, 5),))]) == FinishedLoad(7, 0)
    assert "could not be read" in caplog.text
    monkeypatch.undo()
    assert load(tier, [BlockRead(NAMES[0], ((0, 5),))]) == FinishedLoad(7, 1)
    tier.close()


def test_no_more_waits_to_be_written_than_the_queue_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_module, "QUEUE_BYTES", 2 * sum(PAGE_BYTES))
    pages, gate = PageList(), threading.Event()
    tier = tier_of(tmp_path / "kv", pages)
    append = tier.store.append
    monkeypatch.setattr(tier.store, "append", lambda block: gate.wait() and append(block))
    saved = [tier.save(NAMES[i], put(pages, i)) for i in range(3)]
    assert saved == [True, True, False]
    gate.set()
    until(lambda: tier.save(NAMES[2], put(pages, 2)))
    tier.close()
    tier = tier_of(tmp_path / "kv", pages)
    assert [tier.holds(n.key, n.token_ids) for n in NAMES] == [True, True, True, False]
    tier.close()


def test_no_page_is_copied_for_a_store_that_takes_no_blocks(tmp_path: Path) -> None:
    pages = PageList()
    tier = DiskTier(
        store_of(tmp_path / "kv", max_bytes=1), pages, PageSizes(PAGE_BYTES, POOL_BYTES)
    )
    assert not tier.store.accepts_blocks
    assert tier.save(NAMES[0], [len(pages.pages), len(pages.pages)])  # there are no such pages
    tier.close()


def test_loads_are_predicted_by_what_they_took(home: Path) -> None:
    tier = tier_of(home, PageList())
    before = tier.load_ms(1000)
    assert before == pytest.approx(0.5 + 1000 * max(PAGE_BYTES) / 400e6 * 1e3)
    load(tier, [BlockRead(NAMES[0], ((0, 5),))])  # of a few bytes, which takes its time
    assert tier.bytes_per_second < NOMINAL_BYTES_PER_SECOND
    assert tier.load_ms(1000) > before
    tier.close()


def test_a_tier_that_nobody_needs_any_more_ends_its_threads(home: Path) -> None:
    before = set(threading.enumerate())
    pages = PageList()
    tier = tier_of(home, pages)
    load(tier, [BlockRead(NAMES[0], ((0, 5),))])
    tier.save(NAMES[3], put(pages, 3))
    assert len(set(threading.enumerate()) - before) == 2
    del tier
    gc.collect()
    assert set(threading.enumerate()) <= before
    again = tier_of(home, pages)
    assert again.holds(NAMES[3].key, NAMES[3].token_ids)
    again.close()
