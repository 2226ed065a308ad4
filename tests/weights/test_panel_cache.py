from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from firstword.weights import panel_cache
from firstword.weights.panel_cache import Opened, PanelCache, Usage, not_kept
from firstword.weights.panel_file import PanelFile, PanelLayout

SIZE = 20_480
LAYOUT = PanelLayout.of(b"one", 1, [("a", SIZE - 4096)])
MODEL = Path("/models/one.gguf")
DiskUsage = namedtuple("DiskUsage", "total used free")

# Another process: begins a file, says so, and waits to be told to finish it.
OTHER_PROCESS = """
import sys
from pathlib import Path
from firstword.weights import panel_cache
from firstword.weights.panel_file import PanelLayout

panel_cache.MIN_BYTES = 0
layout = PanelLayout.of(b"one", 1, [("a", 16384)])
file = panel_cache.PanelCache(Path(sys.argv[1])).open(Path("/models/one.gguf"), layout).file
if file is not None and file.is_draft:
    file.blank("a")[:] = 7
    file.panels("a")
    print("begun", flush=True)
    sys.stdin.readline()
    file.commit().join()
"""


@pytest.fixture(autouse=True)
def small_files_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_cache, "MIN_BYTES", 0)


@pytest.fixture
def cache(tmp_path: Path) -> PanelCache:
    return PanelCache(tmp_path)


def start_other(home: Path) -> subprocess.Popen[str]:
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "begun\n"
    return other


def fill(opened: Opened) -> PanelFile:
    """Write sevens, as the other process does."""
    assert opened.file is not None
    blank = opened.file.blank("a")
    assert blank is not None
    blank[:] = 7
    opened.file.panels("a")
    thread = opened.file.commit()
    assert thread is not None
    thread.join()
    return opened.file


def make(cache: PanelCache, name: str, seconds: int) -> Path:
    """Keep a file, last used at that time."""
    before = set(cache.folder.glob("*"))
    fill(cache.open(Path(f"/models/{name}"), PanelLayout.of(name.encode(), 1, [("a", 16_384)])))
    (path,) = set(cache.folder.glob("*")) - before
    os.utime(path, (seconds, seconds))
    return path


def is_found(opened: Opened) -> bool:
    if opened.file is None or opened.file.is_draft:
        if opened.file is not None:
            opened.file.discard()
        return False
    panels = opened.file.panels("a")
    assert panels is not None
    assert (panels == 7).all()
    return True


def test_the_second_start_finds_what_the_first_kept(cache: PanelCache) -> None:
    assert cache.usage() == Usage(0, 0)
    fill(cache.open(MODEL, LAYOUT))
    assert cache.usage() == Usage(1, SIZE)
    assert is_found(cache.open(MODEL, LAYOUT))
    assert cache.clear() == Usage(1, SIZE)
    assert list(cache.folder.iterdir()) == []
    assert cache.clear() == Usage(0, 0)


def test_small_models_are_not_kept(cache: PanelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_cache, "MIN_BYTES", SIZE + 1)
    assert cache.open(MODEL, LAYOUT) == Opened()
    assert not cache.folder.exists()


@pytest.mark.parametrize("damage", ["truncated", "header", "empty"])
def test_a_damaged_file_is_made_anew(cache: PanelCache, damage: str) -> None:
    fill(cache.open(MODEL, LAYOUT))
    (path,) = cache.folder.iterdir()
    if damage == "header":
        content = bytearray(path.read_bytes())
        content[20] ^= 4
        path.write_bytes(content)
    else:
        os.truncate(path, 0 if damage == "empty" else SIZE - 1)
    fill(cache.open(MODEL, LAYOUT))
    assert is_found(cache.open(MODEL, LAYOUT))


def test_a_changed_model_file_replaces_its_older_state(cache: PanelCache) -> None:
    fill(cache.open(MODEL, LAYOUT))
    other = make(cache, "other", 1)
    changed = PanelLayout.of(b"changed", 1, [("a", SIZE - 4096)])
    assert not is_found(cache.open(MODEL, changed))
    fill(cache.open(MODEL, changed))
    assert is_found(cache.open(MODEL, changed))
    assert cache.usage() == Usage(2, 2 * SIZE)
    assert other.exists()


def test_names_of_one_model_file_share_its_panels(cache: PanelCache, tmp_path: Path) -> None:
    model, link = tmp_path / "model.gguf", tmp_path / "link.gguf"
    model.touch()
    link.symlink_to(model)
    fill(cache.open(model, LAYOUT))
    assert is_found(cache.open(link, LAYOUT))


def test_while_another_process_writes_this_one_goes_without(
    cache: PanelCache, tmp_path: Path
) -> None:
    with start_other(tmp_path) as other:
        assert cache.open(MODEL, LAYOUT) == Opened()
        assert cache.clear() == Usage(0, 0)
        other.communicate("go on\n")
    assert other.returncode == 0
    assert is_found(cache.open(MODEL, LAYOUT))


def test_processes_that_begin_at_once_end_with_one_good_file(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(2)
    ]
    for process in both:
        process.communicate("go on\n", timeout=60)
    # Whoever came second found the other's draft and went without, or the finished file.
    assert [process.returncode for process in both] == [0, 0]
    cache = PanelCache(tmp_path)
    assert is_found(cache.open(MODEL, LAYOUT))
    assert len(list(cache.folder.iterdir())) == 1


def test_what_a_killed_process_left_is_removed(cache: PanelCache, tmp_path: Path) -> None:
    with start_other(tmp_path) as other:
        other.send_signal(signal.SIGKILL)
    (left,) = cache.folder.iterdir()
    assert cache.usage() == Usage(0, 0)
    another = PanelLayout.of(b"two", 1, [("a", 100)])
    opened = cache.open(Path("/models/two.gguf"), another)
    assert not left.exists()
    assert opened.file is not None
    opened.file.discard()
    assert not is_found(cache.open(MODEL, LAYOUT))


def test_clearing_removes_what_a_killed_process_left(cache: PanelCache, tmp_path: Path) -> None:
    with start_other(tmp_path) as other:
        other.kill()
    assert cache.clear() == Usage(0, 0)
    assert list(cache.folder.iterdir()) == []


def test_the_least_recently_used_give_way(
    cache: PanelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel_cache, "MAX_BYTES", 3 * SIZE)
    a, b, c = (make(cache, name, seconds) for name, seconds in (("a", 2), ("b", 1), ("c", 3)))
    used = cache.open(Path("/models/a"), PanelLayout.of(b"a", 1, [("a", 16_384)]))
    assert is_found(used)  # now the one that was used last
    d = make(cache, "d", 4)
    assert {path for path in (a, b, c, d) if path.exists()} == {a, c, d}
    make(cache, "e", 5)
    assert {path for path in (a, b, c, d) if path.exists()} == {a, d}


def test_a_model_larger_than_the_cache_is_not_kept(
    cache: PanelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = make(cache, "a", 1)
    monkeypatch.setattr(panel_cache, "MAX_BYTES", SIZE - 1)
    opened = cache.open(MODEL, LAYOUT)
    assert opened.file is None
    assert "they take 20 kB and the cache holds 20 kB" in str(opened.notice)
    assert kept.exists()


@pytest.mark.parametrize(("spare", "kept"), [(0, True), (-1, False)])
def test_a_tenth_of_the_disk_stays_free(
    cache: PanelCache, monkeypatch: pytest.MonkeyPatch, spare: int, kept: bool
) -> None:
    disk = DiskUsage(1_000_000, 0, 100_000 + SIZE + spare)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    opened = cache.open(MODEL, LAYOUT)
    assert (opened.file is not None, opened.notice is None) == (kept, kept)
    if opened.file is None:
        assert "a tenth of it is to stay free" in str(opened.notice)
        assert list(cache.folder.iterdir()) == []
    else:
        opened.file.discard()


def test_a_disk_that_fills_up_costs_only_the_cache(
    cache: PanelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    opened = cache.open(MODEL, LAYOUT)
    assert opened.file is None
    assert "No space left" in str(opened.notice)
    assert list(cache.folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    opened = PanelCache(tmp_path / "file").open(MODEL, LAYOUT)
    assert opened.file is None
    assert "Not a directory" in str(opened.notice)
    assert PanelCache(tmp_path / "file").usage() == Usage(0, 0)


def test_what_cannot_be_read_costs_only_the_cache(
    cache: PanelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cache.open(MODEL, LAYOUT))

    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(panel_cache, "open_file", refuse)
    opened = cache.open(MODEL, LAYOUT)
    assert opened.file is None
    assert "Permission denied" in str(opened.notice)


def test_a_folder_that_only_others_may_write_to_is_read(
    cache: PanelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(cache.open(MODEL, LAYOUT))

    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "utime", refuse)
    assert is_found(cache.open(MODEL, LAYOUT))


def test_notices_name_the_reason_and_the_switch() -> None:
    assert not_kept("why").startswith("the prepared weights are not kept: why. Every start")
    assert "--no-panel-cache" in not_kept("why")
