from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from firstword.weights import panel_file
from firstword.weights.identity import PAGE_BYTES
from firstword.weights.panel_file import PanelFile, PanelLayout, begin, boot_id, open_file

SIZES = [("a", 3 * PAGE_BYTES), ("b", 100), ("c", PAGE_BYTES + 1)]
LAYOUT = PanelLayout.of(b"identity", 1, SIZES)
MARK_OFFSET = 2048


def begun(folder: Path, layout: PanelLayout = LAYOUT) -> PanelFile:
    path = folder / "draft"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return begin(layout, fd, path, folder / "final")


def filled(folder: Path) -> PanelFile:
    file = begun(folder)
    for i, (name, _) in enumerate(SIZES):
        blank = file.blank(name)
        assert blank is not None
        blank[:] = i + 1
        assert file.panels(name) is not None
    return file


def written(folder: Path) -> Path:
    """A finished file that is on the disk."""
    thread = filled(folder).commit()
    assert thread is not None
    thread.join()
    return folder / "final"


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def check_content(file: PanelFile | None) -> None:
    assert file is not None
    for i, (name, size) in enumerate(SIZES):
        panels = file.panels(name)
        assert panels is not None
        assert panels.ctypes.data % PAGE_BYTES == 0
        assert not panels.flags.writeable
        assert panels.tolist() == [i + 1] * size


def test_every_matrix_has_pages_of_its_own() -> None:
    assert dict(LAYOUT.places) == {
        "a": (PAGE_BYTES, 3 * PAGE_BYTES),
        "b": (4 * PAGE_BYTES, 100),
        "c": (5 * PAGE_BYTES, PAGE_BYTES + 1),
    }
    assert LAYOUT.num_bytes == 7 * PAGE_BYTES


def test_a_key_names_the_file_the_layout_and_the_matrices() -> None:
    others = [
        PanelLayout.of(b"identitx", 1, SIZES),
        PanelLayout.of(b"identity", 2, SIZES),
        PanelLayout.of(b"identity", 1, SIZES[::-1]),
        PanelLayout.of(b"identity", 1, SIZES[:2]),
    ]
    assert len({LAYOUT.key, *(other.key for other in others)}) == 5
    assert PanelLayout.of(b"identity", 1, SIZES).key == LAYOUT.key


def test_what_is_written_is_found(tmp_path: Path) -> None:
    draft = filled(tmp_path)
    assert draft.is_draft
    assert draft.blank("b") is None  # it has been made
    thread = draft.commit()
    assert not draft.is_draft
    assert draft.blank("a") is None
    check_content(draft)
    assert os.listdir(tmp_path) == ["final"]
    found = open_file(LAYOUT, tmp_path / "final")
    check_content(found)
    assert found is not None
    assert (found.is_draft, found.blank("a"), found.panels("x")) == (False, None, None)
    assert thread is not None
    thread.join()
    assert draft.commit() is None
    found.discard()
    assert (tmp_path / "final").exists()


def test_a_draft_that_is_given_up_is_gone(tmp_path: Path) -> None:
    draft = begun(tmp_path)
    draft.discard()
    assert os.listdir(tmp_path) == []


def test_a_draft_that_cannot_be_named_is_given_up(tmp_path: Path) -> None:
    draft = filled(tmp_path)
    (tmp_path / "final").mkdir()
    with pytest.raises(OSError, match="directory"):
        draft.commit()
    draft.discard()
    assert os.listdir(tmp_path) == ["final"]


def test_pieces_are_written_when_they_are_whole_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel_file, "_PIECE_BYTES", 2 * PAGE_BYTES)
    draft = begun(tmp_path)

    def on_disk() -> list[int]:
        """First bytes of the pages of the file."""
        return list((tmp_path / "draft").read_bytes()[::PAGE_BYTES])

    # Pages: the header, three of a, one of b, two of c. Pieces: pages 0-1, 2-3, 4-5, 6.
    steps = [
        (2, "c", [0, 0, 0, 0, 0, 0, 3]),
        (1, "b", [0, 0, 0, 0, 2, 3, 3]),
        (0, "a", [0, 1, 1, 1, 2, 3, 3]),
    ]
    for i, name, expected in steps:
        blank = draft.blank(name)
        assert blank is not None
        blank[:] = i + 1
        draft.panels(name)
        assert on_disk() == expected
    draft.commit()
    check_content(open_file(LAYOUT, tmp_path / "final"))


def test_a_matrix_that_nobody_made_keeps_no_other_from_the_file(tmp_path: Path) -> None:
    draft = begun(tmp_path)
    blank = draft.blank("a")
    assert blank is not None
    blank[:] = 1
    draft.panels("a")
    draft.commit()
    found = open_file(LAYOUT, tmp_path / "final")
    assert found is not None
    panels = found.panels("a")
    assert panels is not None
    assert (panels == 1).all()


def test_a_write_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, content: memoryview, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        filled(tmp_path)


def test_a_write_may_take_several_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[:1000], at))
    check_content(open_file(LAYOUT, written(tmp_path)))


def test_room_is_taken_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        begun(tmp_path)
    monkeypatch.undo()
    (tmp_path / "draft").unlink()
    begun(tmp_path)
    assert (tmp_path / "draft").stat().st_blocks * 512 >= LAYOUT.num_bytes


@pytest.mark.parametrize("size", [0, 1, PAGE_BYTES - 1, PAGE_BYTES, LAYOUT.num_bytes - 1])
def test_a_truncated_file_is_not_trusted(tmp_path: Path, size: int) -> None:
    path = written(tmp_path)
    os.truncate(path, size)
    assert open_file(LAYOUT, path) is None


def test_a_longer_file_is_not_trusted(tmp_path: Path) -> None:
    path = written(tmp_path)
    os.truncate(path, LAYOUT.num_bytes + 1)
    assert open_file(LAYOUT, path) is None


def test_no_bit_of_the_header_may_differ(tmp_path: Path) -> None:
    path = written(tmp_path)
    for offset in range(8 + 8 + 32 + 32 + 36 + 32):
        flip(path, offset)
        assert open_file(LAYOUT, path) is None, offset
        flip(path, offset)
    check_content(open_file(LAYOUT, path))


def test_a_sampled_page_may_not_differ(tmp_path: Path) -> None:
    path = written(tmp_path)
    flip(path, 2 * PAGE_BYTES)
    assert open_file(LAYOUT, path) is None


def test_another_key_is_not_trusted(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert open_file(PanelLayout.of(b"other", 1, SIZES), path) is None


def test_a_file_without_a_header_is_not_trusted(tmp_path: Path) -> None:
    begun(tmp_path)
    assert open_file(LAYOUT, tmp_path / "draft") is None


def test_after_a_restart_only_what_was_on_the_disk_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    assert path.read_bytes()[MARK_OFFSET : MARK_OFFSET + 8] == b"on disk\n"
    monkeypatch.setattr(panel_file, "boot_id", lambda: b"2" * 36)
    check_content(open_file(LAYOUT, path))
    flip(path, MARK_OFFSET)
    assert open_file(LAYOUT, path) is None


def test_a_file_of_this_boot_is_brought_to_the_disk_by_who_finds_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    flip(path, MARK_OFFSET)
    assert boot_id().strip(b"\0")
    check_content(open_file(LAYOUT, path))
    for thread in threading.enumerate():
        if thread.name == "panel-cache-sync":
            thread.join()
    assert path.read_bytes()[MARK_OFFSET : MARK_OFFSET + 8] == b"on disk\n"


def test_a_machine_that_names_no_boot_trusts_only_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panel_file, "_BOOT_ID", tmp_path / "missing")
    path = written(tmp_path)
    check_content(open_file(LAYOUT, path))
    flip(path, MARK_OFFSET)
    assert open_file(LAYOUT, path) is None


def test_what_was_removed_meanwhile_needs_no_disk(tmp_path: Path) -> None:
    panel_file.sync_later(tmp_path / "missing").join()


def test_views_outlive_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = open_file(LAYOUT, path)
    assert found is not None
    panels = found.panels("a")
    del found
    path.unlink()
    assert panels is not None
    assert int(panels.astype(np.int64).sum()) == 3 * PAGE_BYTES
