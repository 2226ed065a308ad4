"""The store gives back exactly what was written or nothing, whatever happens to its files."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword.kvcache.disk.store import DiskStore
from tests.kvcache.disk.blocks import (
    BOTH,
    OTHER,
    ROOT,
    blocks,
    files,
    kept,
    open_files,
    store_of,
)

BLOCKS = blocks(12)
SUFFIXES = (".idx", ".kv")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "kv"


def filled(home: Path, number: int = len(BLOCKS)) -> None:
    """Write blocks and close."""
    store = store_of(home)
    assert store.notice is None
    assert all(store.append(block) for block in BLOCKS[:number])
    store.close()


def test_blocks_outlive_the_process(home: Path) -> None:
    filled(home)
    store = store_of(home)
    assert kept(store, BLOCKS) == BLOCKS
    assert store.children(ROOT, 9) == [BLOCKS[0].token_ids]
    assert store.children(BLOCKS[-1].key, 9) == []
    usage = store.usage
    assert usage.num_blocks == len(BLOCKS) and usage.num_failed_writes == 0
    assert usage.num_bytes == sum(f.stat().st_size for s in SUFFIXES for f in files(home, s)) - 36
    assert usage.max_bytes == 1_000_000
    store.close()


def test_pages_come_in_the_order_that_was_asked_for(home: Path) -> None:
    filled(home, 1)
    store, block = store_of(home), BLOCKS[0]
    assert store.read(block.key, block.token_ids, [1]) == [block.pages[1]]
    assert store.read(block.key, block.token_ids, [1, 0]) == [block.pages[1], block.pages[0]]
    assert store.read(block.key, block.token_ids, []) == []
    store.close()


def test_other_tokens_of_a_key_are_a_miss(home: Path) -> None:
    filled(home, 1)
    store = store_of(home)
    other = BLOCKS[1].token_ids
    assert not store.holds(BLOCKS[0].key, other)
    assert store.read(BLOCKS[0].key, other, BOTH) is None
    assert kept(store, BLOCKS[:1]) == BLOCKS[:1]  # and nothing was forgotten for it
    store.close()


def test_a_block_is_written_once(home: Path) -> None:
    store = store_of(home)
    assert store.append(BLOCKS[0]) and store.append(BLOCKS[0])
    assert files(home, ".kv")[0].stat().st_size == 100
    store.close()


def test_two_processes_write_the_same_and_each_finds_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firstword.kvcache.disk.store._REFRESH_SECONDS", -1)
    one, other = store_of(home), store_of(home)
    for block in BLOCKS:
        assert one.append(block) and other.append(block)
    assert kept(one, BLOCKS) == kept(other, BLOCKS) == BLOCKS
    assert sum(path.stat().st_size for path in files(home, ".kv")) == 100 * len(BLOCKS)
    one.close()
    other.close()


def test_two_processes_write_at_the_same_time(home: Path) -> None:
    one, other = store_of(home), store_of(home)
    assert all(one.append(block) for block in BLOCKS[:8])
    assert all(other.append(block) for block in BLOCKS[4:])
    assert len(kept(one, BLOCKS)) == 8
    one.refresh()
    assert kept(one, BLOCKS) == BLOCKS
    one.close()
    other.close()


def test_clearing_while_reading_is_a_miss(home: Path) -> None:
    from firstword.kvcache.disk.home import KVHome

    filled(home)
    store = store_of(home)
    assert kept(store, BLOCKS[:2]) == BLOCKS[:2]
    KVHome(home).clear()
    assert kept(store, BLOCKS) == []
    assert store.usage.num_blocks == 0
    assert store.append(BLOCKS[0]) and kept(store, BLOCKS) == BLOCKS[:1]
    store.close()


def test_rm_while_writing_and_reading_is_a_miss(home: Path) -> None:
    import shutil

    store = store_of(home)
    assert all(store.append(block) for block in BLOCKS[:5])
    shutil.rmtree(home)
    kept(store, BLOCKS[:5])  # files that are open can still be read
    assert store.append(BLOCKS[6]) and kept(store, BLOCKS[6:7]) == BLOCKS[6:7]
    store.close()


def test_a_lowered_cap_takes_effect_when_the_store_is_opened(home: Path) -> None:
    store = store_of(home, max_bytes=10**6)
    many = blocks(300)
    assert all(store.append(block) for block in many)
    store.close()
    assert len(files(home, ".idx")) > 2
    store = store_of(home, max_bytes=30_000)
    assert sum(f.stat().st_size for f in home.rglob("*") if f.is_file()) <= 30_000
    held = kept(store, many)
    assert held and len(held) == store.usage.num_blocks
    gone = [b for b in many if not store.holds(b.key, b.token_ids)]
    assert {store.departure(block.key) for block in gone} == {"evicted"}
    assert store.departure(held[0].key) is None
    store.close()


def test_what_is_used_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstword.kvcache.disk.store._TOUCH_SECONDS", 0)
    many = blocks(300)
    store = store_of(home, max_bytes=100_000)
    read, touched = many[0], many[100]
    for i, block in enumerate(many):
        assert store.append(block)
        if i % 10 == 0:
            time.sleep(0.005)  # for times that differ
            assert kept(store, [read]) == [read]
            if i > 100:
                store.touch(touched.key)
    held = kept(store, many)
    assert read in held and touched in held and many[50] not in held
    store.touch(b"unknown")
    store.close()


def test_other_models_texts_are_known(home: Path) -> None:
    filled(home)
    store = store_of(home, OTHER)
    assert kept(store, BLOCKS) == []
    assert store.known_elsewhere(BLOCKS[0].token_ids)
    assert not store.known_elsewhere(BLOCKS[1].token_ids)  # no text begins with it
    assert not store_of(home).known_elsewhere(BLOCKS[0].token_ids)  # it is its own
    store.close()


def test_a_damaged_block_is_struck_out_for_all(home: Path) -> None:
    filled(home)
    flip(files(home, ".kv")[0], 8 * 250)
    store = store_of(home)
    assert kept(store, BLOCKS) == [*BLOCKS[:2], *BLOCKS[3:]]
    assert not store.holds(BLOCKS[2].key, BLOCKS[2].token_ids)
    again = store_of(home)
    assert not again.holds(BLOCKS[2].key, BLOCKS[2].token_ids)
    assert store.append(BLOCKS[2]) and kept(store, BLOCKS) == BLOCKS
    store.close()
    again.close()


def test_a_page_that_was_not_asked_for_may_be_damaged(home: Path) -> None:
    filled(home, 1)
    flip(files(home, ".kv")[0], 8 * 99)
    store, block = store_of(home), BLOCKS[0]
    assert store.read(block.key, block.token_ids, [0]) == [block.pages[0]]
    assert store.read(block.key, block.token_ids, BOTH) is None
    store.close()


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_any_damage_is_a_miss(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        home = Path(folder)
        filled(home)
        for _ in range(data.draw(st.integers(1, 3))):
            path = files(home, data.draw(st.sampled_from(SUFFIXES)))[0]
            size = path.stat().st_size
            if data.draw(st.booleans()):
                os.truncate(path, data.draw(st.integers(0, size)))
            elif size:
                flip(path, data.draw(st.integers(0, 8 * size - 1)))
        store = store_of(home)
        before = kept(store, BLOCKS)
        assert kept(store, BLOCKS) == before
        for block in BLOCKS:
            assert store.append(block)  # and what is lost can be written again
        assert kept(store, BLOCKS) == BLOCKS
        store.close()
        again = store_of(home)
        assert kept(again, BLOCKS) == BLOCKS
        again.close()


def test_files_are_private(home: Path) -> None:
    filled(home)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*") if path.is_file()}
    assert modes == {0o600} and stat.S_IMODE(home.stat().st_mode) == 0o700


def test_a_file_where_the_folder_should_be(home: Path) -> None:
    home.write_text("mine")
    store = store_of(home)
    assert store.notice is not None
    assert "prompts are not kept on the disk" in store.notice and "--kv-disk 0" in store.notice
    refuses(store)
    assert home.read_text() == "mine"


def test_a_symlink_to_a_folder_is_followed_and_one_to_nowhere_is_not(
    home: Path, tmp_path: Path
) -> None:
    home.symlink_to(tmp_path / "disk")
    refuses(store_of(home))
    (tmp_path / "disk").mkdir()
    filled(home)
    assert files(tmp_path / "disk", ".kv")


def test_another_users_folder_is_neither_read_nor_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(home)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    store = store_of(home)
    assert store.notice is not None and "belongs to another user" in store.notice
    refuses(store)
    assert store.usage.num_blocks == 0


def test_without_locks_blocks_are_read_and_not_written(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(home, 6)

    def no_locks(fd: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    store = store_of(home)
    assert store.notice is not None and "No locks available" in store.notice
    assert kept(store, BLOCKS) == BLOCKS[:6]
    assert not store.append(BLOCKS[7])
    store.close()


def test_a_folder_that_cannot_be_written_to_is_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(home, 6)
    real_open = os.open

    def read_only(path: str | Path, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system")
        return real_open(path, flags, mode)

    monkeypatch.setattr("os.open", read_only)
    store = store_of(home)
    assert store.notice is not None and "Read-only file system" in store.notice
    assert kept(store, BLOCKS) == BLOCKS[:6]
    assert not store.append(BLOCKS[7])
    store.close()


def test_a_cap_below_one_block_says_so(home: Path) -> None:
    store = store_of(home, max_bytes=8000)
    assert store.notice is not None and "8000 are allowed" in store.notice
    refuses(store)


def test_a_home_that_is_busy_is_no_reason_to_give_up(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from firstword.kvcache.disk.home import KVHome

    filled(home, 6)
    monkeypatch.setattr("firstword.kvcache.disk.home._LOCK_SECONDS", 0)
    with KVHome(home).alone():
        store = store_of(home)
    assert store.notice is None and kept(store, BLOCKS) == BLOCKS[:6]
    assert store.append(BLOCKS[6])
    store.close()


def refuses(store: DiskStore) -> None:
    """Nothing is kept, and nothing fails."""
    assert not store.append(BLOCKS[0])
    assert not store.accepts_blocks
    store.refresh()
    assert kept(store, BLOCKS) == []
    assert store.children(ROOT, 9) == [] and store.departure(BLOCKS[0].key) is None
    store.close()


@pytest.fixture(autouse=True)
def no_file_stays_open() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() <= before
