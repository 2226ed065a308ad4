"""One file of panels: a header page, then the panels of each matrix on pages of their own.

Not here: where such files are and when they go (panel_cache), and what panels are (ops).

A file is trusted when its header is whole, names this model file and layout, and its size and
sampled pages are right. Its bytes reach the disk long after they are in the operating system's
memory. A power cut in between would leave zeros, so a header also says in which boot of the machine
the file was written, and a mark is set when all of it is on the disk: one of the two must hold.

Panels are made in memory and written in large pieces, not made in the mapped file: that gives pages
of 4 KiB, with which SmolLM2 decoded 15% slower than from memory. From large writes Linux (6.16 and
newer, on ext4; XFS since 5.18) makes huge pages and maps them as such.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from firstword.weights.identity import PAGE_BYTES, sample_digest

_MAGIC = b"fwpanel1"
_FIELDS = struct.Struct("<8sQ32s32s36s")  # magic, size of the file, key, sample, boot
_CHECKSUM_BYTES = 32
_MARK = b"on disk\n"
_MARK_OFFSET = 2048  # apart from the header: it is written later
_PIECE_BYTES = 8 << 20  # a multiple of a huge page, and no long wait for one piece
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class PanelLayout:
    """Where panels lie in a file, and of which model.

    Args:
        key: 32 bytes; another model file, layout or set of matrices has another.
        places: offset and bytes of each matrix by name.
        num_bytes: of the whole file.
    """

    key: bytes
    places: Mapping[str, tuple[int, int]]
    num_bytes: int

    @classmethod
    def of(cls, identity: bytes, version: int, sizes: Iterable[tuple[str, int]]) -> PanelLayout:
        """Lay out matrices one after the other.

        Args:
            identity: of the model file, all parts.
            version: of the layout of panels.
            sizes: names of matrices and bytes of their panels.
        """
        places: dict[str, tuple[int, int]] = {}
        end = PAGE_BYTES
        for name, size in sizes:
            places[name] = (end, size)
            end += -(-size // PAGE_BYTES) * PAGE_BYTES
        key = sha256(repr((identity, version, places)).encode()).digest()
        return cls(key, MappingProxyType(places), end)


class PanelFile:
    """Panels of a model, mapped: all there, or being written.

    Args:
        layout: what is where.
        data: the whole file, mapped read-only.
        draft: the file while it is being written.
    """

    def __init__(self, layout: PanelLayout, data: mmap.mmap, draft: Draft | None = None) -> None:
        self.layout = layout
        self._data, self._draft = data, draft

    @property
    def is_draft(self) -> bool:
        """Whether panels are still to be written."""
        return self._draft is not None

    def blank(self, name: str) -> NDArray[np.uint8] | None:
        """Where to write the panels of a matrix; None when they are there or not kept."""
        if self._draft is None or name not in self._draft.missing:
            return None
        offset, size = self.layout.places[name]
        return np.frombuffer(self._draft.memory, np.uint8, size, offset)

    def panels(self, name: str) -> NDArray[np.uint8] | None:
        """The panels of a matrix, read-only; None when they are not kept.

        In a draft this says that `blank` has been filled; its content may be there only after
        `commit`.

        Raises:
            OSError: a draft cannot be written to the disk, so that its panels are of no use.
        """
        if name not in self.layout.places:
            return None
        if self._draft is not None:
            self._draft.write(name, self.layout)
        offset, size = self.layout.places[name]
        return np.frombuffer(self._data, np.uint8, size, offset)

    def commit(self) -> threading.Thread | None:
        """Write what is left of a draft and give it its name.

        Returns:
            A thread that brings the file to the disk; nobody has to wait for it.

        Raises:
            OSError: it cannot be kept: discard it, and use none of its panels.
        """
        if self._draft is None:
            return None
        draft = self._draft
        draft.write_rest(self.layout)
        _write_all(draft.fd, memoryview(_header(self.layout, self._data)), 0)
        os.replace(draft.path, draft.target)
        draft.close()
        self._draft = None
        return sync_later(draft.target)

    def discard(self) -> None:
        """Remove a file that will not be finished."""
        if self._draft is not None:
            draft, self._draft = self._draft, None
            draft.path.unlink(missing_ok=True)
            draft.close()


@dataclass(frozen=True)
class Draft:
    """A file of panels before it has its name.

    Args:
        path: where it is now.
        target: where it will be.
        fd: open for writing and locked, which says that its writer lives.
        memory: where its content is made, as large as the file; what is written is given back.
        missing: names of the matrices that are still to be made.
        unfinished: matrices still to be made in each piece of the file.
    """

    path: Path
    target: Path
    fd: int
    memory: mmap.mmap
    missing: set[str]
    unfinished: list[int]

    def write(self, name: str, layout: PanelLayout) -> None:
        """Write the pieces of the file that are whole now that this matrix is made."""
        if name not in self.missing:
            return
        self.missing.remove(name)
        for piece in _pieces(*layout.places[name]):
            self.unfinished[piece] -= 1
            if not self.unfinished[piece]:
                self._write_piece(piece, layout)

    def write_rest(self, layout: PanelLayout) -> None:
        """Write the pieces with matrices that nobody made."""
        for piece, count in enumerate(self.unfinished):
            if count:
                self._write_piece(piece, layout)

    def _write_piece(self, piece: int, layout: PanelLayout) -> None:
        start = piece * _PIECE_BYTES
        end = min(start + _PIECE_BYTES, layout.num_bytes)
        with memoryview(self.memory) as memory, memory[start:end] as content:
            _write_all(self.fd, content, start)
        self.memory.madvise(mmap.MADV_DONTNEED, start, end - start)

    def close(self) -> None:
        """Unlock the file; the mapping goes when nobody uses it."""
        # Not by closing alone: mappings hold duplicates of the descriptor, and the lock with it.
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        os.close(self.fd)


def begin(layout: PanelLayout, fd: int, path: Path, target: Path) -> PanelFile:
    """Make room for all panels of a model in an empty file.

    All of it is taken from the disk now, so that a full disk is found out before the work.

    Args:
        layout: what will be where.
        fd: the file, open for reading and writing, and locked; it is closed by the result.
        path: its name now.
        target: its name when it is written.

    Raises:
        OSError: the disk is full, or the file system cannot map files.
    """
    os.posix_fallocate(fd, 0, layout.num_bytes)
    memory = mmap.mmap(-1, layout.num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _wish_for_huge_pages(memory)
    unfinished = [0] * (-(-layout.num_bytes // _PIECE_BYTES))
    for offset, size in layout.places.values():
        for piece in _pieces(offset, size):
            unfinished[piece] += 1
    draft = Draft(path, target, fd, memory, set(layout.places), unfinished)
    return PanelFile(layout, _map(fd, layout.num_bytes), draft)


def open_file(layout: PanelLayout, path: Path) -> PanelFile | None:
    """Map a file if it can be trusted.

    Returns:
        None when it is damaged, unfinished, or of another model or layout.

    Raises:
        OSError: it is not there or cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_size != layout.num_bytes:
            return None
        data = _map(fd, layout.num_bytes)
    finally:
        os.close(fd)
    page = data[:PAGE_BYTES]
    fields, checksum = page[: _FIELDS.size], page[_FIELDS.size : _FIELDS.size + _CHECKSUM_BYTES]
    if sha256(fields).digest() != checksum:
        return None
    magic, num_bytes, key, sample, boot = _FIELDS.unpack(fields)
    if (magic, num_bytes, key) != (_MAGIC, layout.num_bytes, layout.key):
        return None
    is_on_disk = page[_MARK_OFFSET : _MARK_OFFSET + len(_MARK)] == _MARK
    if not is_on_disk and (boot != boot_id() or not boot.strip(b"\0")):
        return None
    if sample != _sample(data):
        return None
    if not is_on_disk:
        sync_later(path)
    return PanelFile(layout, data)


def boot_id() -> bytes:
    """What tells this boot of the machine from all others, 36 bytes; zeros if nothing does."""
    try:
        return _BOOT_ID.read_bytes()[:36].ljust(36, b"\0")
    except OSError:
        return bytes(36)


def sync_later(path: Path) -> threading.Thread:
    """Bring a file to the disk and mark it so, without making anybody wait."""
    thread = threading.Thread(target=_sync, args=(path,), daemon=True, name="panel-cache-sync")
    thread.start()
    return thread


def _sync(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return  # removed since, or not ours to write to
    try:
        _write_out(fd, os.fstat(fd).st_size)
        os.fsync(fd)
        os.pwrite(fd, _MARK, _MARK_OFFSET)
    except OSError:
        pass  # no mark: the file is trusted until the machine is restarted
    finally:
        os.close(fd)


def _write_out(fd: int, num_bytes: int) -> None:
    """Write to the disk in pieces: a process can end between two, but not within an fsync."""
    sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)  # Linux alone has it
    if sync_file_range is None:
        return
    wait_write_wait = 7
    for offset in range(0, num_bytes, _PIECE_BYTES):
        piece = ctypes.c_int64(offset), ctypes.c_int64(_PIECE_BYTES)
        sync_file_range(ctypes.c_int(fd), *piece, ctypes.c_uint(wait_write_wait))


def _map(fd: int, num_bytes: int) -> mmap.mmap:
    data = mmap.mmap(fd, num_bytes, mmap.MAP_SHARED, mmap.PROT_READ)
    _wish_for_huge_pages(data)  # for what has to be read from the disk
    return data


def _wish_for_huge_pages(memory: mmap.mmap) -> None:
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError):
        pass  # no such pages on this system


def _pieces(offset: int, size: int) -> range:
    """The pieces of a file that hold some of these bytes."""
    return range(offset // _PIECE_BYTES, (offset + size - 1) // _PIECE_BYTES + 1)


def _write_all(fd: int, content: memoryview, offset: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(fd, content[done:], offset + done)


def _header(layout: PanelLayout, data: mmap.mmap) -> bytes:
    fields = _FIELDS.pack(_MAGIC, layout.num_bytes, layout.key, _sample(data), boot_id())
    return fields + sha256(fields).digest()


def _sample(data: mmap.mmap) -> bytes:
    with memoryview(data) as view, view[PAGE_BYTES:] as panels:
        return sample_digest(panels)
