"""The folder is private, its cap holds over all models, and the least recently used gives way."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from firstword.kvcache.disk.departures import read_departures
from firstword.kvcache.disk.home import KVHome, reserved_bytes
from firstword.kvcache.disk.record import StoreIdentity
from firstword.kvcache.disk.segment import SegmentHeader, SegmentWriter
from tests.kvcache.disk.blocks import IDENTITY, LAYOUT, OTHER, blocks, files

HEADER = SegmentHeader.of(LAYOUT, 4)
PLENTY = 10**6
DAY = 86_400


@pytest.fixture
def home(tmp_path: Path) -> KVHome:
    home = KVHome(tmp_path / "cache" / "kv")
    home.prepare()
    return home


def begin(
    home: KVHome, identity: StoreIdentity = IDENTITY, max_bytes: int = PLENTY
) -> SegmentWriter:
    with home.alone():
        writer = home.begin(identity, HEADER, max_bytes)
    assert writer is not None
    return writer


def finished(home: KVHome, identity: StoreIdentity, seed: int, age: float) -> Path:
    """A full segment that was used some seconds ago."""
    writer = begin(home, identity)
    for block in blocks(4, seed)[writer.count :]:
        writer.append(LAYOUT.pack(block), block.pages)
    writer.close()
    then = time.time() - age
    os.utime(writer.path, (then, then))
    return writer.path


def make_room(home: KVHome, max_bytes: int, num_least: int = 0) -> bool:
    with home.alone():
        return home.make_room(max_bytes, num_least)


def test_the_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    folder.mkdir(mode=0o755)
    KVHome(folder).prepare()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    begin(KVHome(folder)).close()
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


def test_the_folder_of_another_user_is_not_used(
    home: KVHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="belongs to another user"):
        home.prepare()


def test_one_at_a_time(home: KVHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstword.kvcache.disk.home._LOCK_SECONDS", 0)
    with home.alone(), pytest.raises(BlockingIOError, match="locked by another"), home.alone():
        raise AssertionError
    with home.alone():
        pass


def test_a_store_says_whose_it_is(home: KVHome) -> None:
    writer = begin(home)
    about = json.loads((writer.path.parent / "about.json").read_text())
    assert about["name"] == "tiny" and about["settings"] == "float16, native"
    assert about["page_bytes"] == [60, 40] and about["block_size"] == 4
    writer.close()


def test_an_unfinished_segment_goes_before_a_new_one(home: KVHome) -> None:
    first = begin(home)
    second = begin(home)  # the first is being written to
    assert first.path != second.path
    block = blocks(1)[0]
    for writer in (first, second):
        writer.append(LAYOUT.pack(block), block.pages)
        writer.close()
    again = begin(home)
    assert again.path in (first.path, second.path) and again.count == 1
    again.close()


def test_a_segment_counts_with_its_capacity_while_it_is_written_to(home: KVHome) -> None:
    assert reserved_bytes(HEADER) == 2 * 4096
    writer = begin(home)
    with home.alone():
        live = home.survey(time.time())
    assert [(s.num_bytes, s.is_live) for s in live] == [(2 * 4096, True)]
    block = blocks(1)[0]
    writer.append(LAYOUT.pack(block), block.pages)
    writer.close()
    with home.alone():
        dead = home.survey(time.time())
    assert [(s.path, s.is_live) for s in dead] == [(writer.path, False)]


def test_the_cap_holds_over_all_models_and_the_least_recently_used_gives_way(home: KVHome) -> None:
    oldest = finished(home, OTHER, 0, 300)
    middle = finished(home, IDENTITY, 1, 200)
    newest = finished(home, OTHER, 2, 100)
    others = 2 * 4096 + 4096  # about.json of two stores, and the memory of what has gone
    assert make_room(home, others + 2 * 8192)
    assert files(home.path, ".idx") == [middle, newest]
    assert set(read_departures(oldest.parent).values()) == {"evicted"}
    assert set(read_departures(oldest.parent)) == {block.key for block in blocks(4)}
    assert make_room(home, others + 4096 + 8192)
    assert files(home.path, ".idx") == [newest]


def test_what_is_written_to_does_not_give_way(home: KVHome) -> None:
    writer = begin(home)
    assert not make_room(home, 0)
    with home.alone():
        assert home.begin(OTHER, HEADER, 2 * 8192) is None
    assert files(home.path, ".idx") == [writer.path]
    writer.close()


def test_a_full_disk_takes_the_oldest_but_not_the_last(home: KVHome) -> None:
    finished(home, IDENTITY, 0, 200)
    newest = finished(home, IDENTITY, 1, 100)
    assert make_room(home, PLENTY, num_least=1)
    assert files(home.path, ".idx") == [newest]
    assert not make_room(home, PLENTY, num_least=1)
    assert files(home.path, ".idx") == [newest]


def test_what_nobody_used_for_thirty_days_expires(home: KVHome) -> None:
    old = finished(home, IDENTITY, 0, 31 * DAY)
    young = finished(home, IDENTITY, 1, 29 * DAY)
    assert not old.exists()  # already when the second was begun
    assert set(read_departures(young.parent).values()) == {"expired"}
    assert make_room(home, PLENTY)
    assert files(home.path, ".idx") == [young]


def test_a_clock_that_was_set_back_ages_nothing_and_keeps_nothing_for_ever(home: KVHome) -> None:
    path = finished(home, IDENTITY, 0, -365 * DAY)
    assert make_room(home, PLENTY)
    assert abs(path.stat().st_mtime - time.time()) < 60


def test_half_a_segment_is_swept_up(home: KVHome) -> None:
    path = finished(home, IDENTITY, 0, 0)
    path.unlink()
    assert make_room(home, PLENTY)
    assert files(home.path, ".kv") == []
    path = finished(home, IDENTITY, 0, 0)
    path.with_suffix(".kv").unlink()
    assert make_room(home, 4096)
    assert files(home.path, ".idx") == []


def test_clearing_takes_all_and_spares_no_writer(home: KVHome) -> None:
    finished(home, OTHER, 0, 0)
    writer = begin(home)
    assert home.clear() > 0
    assert [path.name for path in home.path.iterdir()] == ["lock"]
    assert writer.is_gone
    writer.close()
    assert home.clear() == 0


def test_clearing_leaves_what_is_none_of_ours(home: KVHome) -> None:
    path = finished(home, IDENTITY, 0, 0)
    notes = path.with_name("notes")
    notes.write_text("mine")
    home.clear()
    assert notes.read_text() == "mine"
    assert list(path.parent.iterdir()) == [notes]


def test_there_is_nothing_to_clear_where_there_is_no_folder(tmp_path: Path) -> None:
    assert KVHome(tmp_path / "none").clear() == 0
    assert KVHome(tmp_path / "none").folders() == []


def test_a_link_to_a_folder_is_no_store(home: KVHome, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (home.path / "link").symlink_to(tmp_path / "elsewhere")
    assert home.folders() == []
