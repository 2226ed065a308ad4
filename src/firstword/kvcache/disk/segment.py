"""One segment: a file of pages and beside it the file of their entries; both only ever grow.

    0123456789abcdef.kv     pages of block 0, of block 1, ...
    0123456789abcdef.idx    header, entry of block 0, of block 1, ...

Who appends holds a lock (flock) on the .idx file, which ends with the process however that ends.
Pages are written before their entry, so that whatever is cut short leaves entries that are whole
and true, or none. Nothing is synced: what a power cut leaves, the digests tell. Removal unlinks
the .idx first and truncates the pages, so that the space is free whoever still has them open.
Not here: which segments there are and how many (home).
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from firstword.kvcache.disk.record import RecordLayout

ENTRIES_SUFFIX = ".idx"
PAGES_SUFFIX = ".kv"
_MAGIC = b"FWKV\x01\x00\x00\x00"
_HEADER = struct.Struct("<8sQQII")  # and behind it the crc32 of all before
_CHECK = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECK.size
_MODE = 0o600
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = _WRITE | os.O_CREAT | os.O_EXCL


@dataclass(frozen=True)
class SegmentHeader:
    """What a segment says of itself.

    Args:
        capacity: blocks it may hold.
        record_bytes: bytes of the pages of one block.
        block_size: tokens in one block.
        num_groups: pages of one block.
    """

    capacity: int
    record_bytes: int
    block_size: int
    num_groups: int

    @classmethod
    def of(cls, layout: RecordLayout, capacity: int) -> SegmentHeader:
        """That of a new segment."""
        return cls(capacity, layout.record_bytes, layout.block_size, len(layout.page_bytes))

    @classmethod
    def unpack(cls, data: bytes) -> SegmentHeader | None:
        """Read it from the beginning of an .idx file; None if it is not one."""
        if len(data) < HEADER_BYTES or data[:8] != _MAGIC:
            return None
        if _CHECK.pack(zlib.crc32(data[: _HEADER.size])) != data[_HEADER.size : HEADER_BYTES]:
            return None
        header = cls(*_HEADER.unpack_from(data)[1:])
        return header if header.record_bytes else None

    @cached_property
    def layout(self) -> RecordLayout:
        """That of its entries; how the bytes of a record are shared out, no file says."""
        return RecordLayout((0,) * self.num_groups, self.block_size)

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry."""
        return self.layout.entry_bytes

    def pack(self) -> bytes:
        """The bytes that an .idx file begins with."""
        sizes = (self.capacity, self.record_bytes, self.block_size, self.num_groups)
        head = _HEADER.pack(_MAGIC, *sizes)
        return head + _CHECK.pack(zlib.crc32(head))

    def num_bytes(self, num_blocks: int) -> int:
        """Bytes of both files when they hold so many blocks."""
        return HEADER_BYTES + num_blocks * (self.record_bytes + self.entry_bytes)


class SegmentWriter:
    """A segment that this process, and nobody else, appends to.

    Args:
        path: of the .idx file.
        fds: of the .idx file, which is locked, and of the pages; closed by `close`.
        header: what the segment says of itself.
        count: blocks it holds.
    """

    def __init__(self, path: Path, fds: tuple[int, int], header: SegmentHeader, count: int) -> None:
        self.path = path
        self.header = header
        self.count = count
        self._entries_fd, self._pages_fd = fds

    @classmethod
    def create(cls, folder: Path, header: SegmentHeader) -> SegmentWriter:
        """Begin a segment.

        Raises:
            OSError: no file can be made or locked there.
        """
        path = folder / f"{secrets.token_hex(8)}{ENTRIES_SUFFIX}"
        pages_fd = os.open(path.with_suffix(PAGES_SUFFIX), _CREATE, _MODE)
        entries_fd = -1
        try:
            entries_fd = os.open(path, _CREATE, _MODE)
            if not lock(entries_fd):
                raise BlockingIOError(errno.EAGAIN, f"{path} is locked by somebody else")
            _write_all(entries_fd, [header.pack()], 0)
        except BaseException:
            if entries_fd >= 0:
                os.close(entries_fd)
            os.close(pages_fd)
            with suppress(OSError):
                remove(path)
            raise
        return cls(path, (entries_fd, pages_fd), header, 0)

    @classmethod
    def adopt(cls, path: Path, header: SegmentHeader) -> SegmentWriter | None:
        """Go on with a segment that was left unfinished; None if it is of no use for that.

        Args:
            path: of the .idx file.
            header: what the segment must say of itself, but for its capacity.

        Raises:
            OSError: a file cannot be opened or written to.
        """
        entries_fd = os.open(path, _WRITE)
        pages_fd = -1
        try:
            found = SegmentHeader.unpack(os.pread(entries_fd, HEADER_BYTES, 0))
            if lock(entries_fd) and found is not None and _alike(found, header):
                pages_fd = os.open(path.with_suffix(PAGES_SUFFIX), _WRITE)
                count = (os.fstat(entries_fd).st_size - HEADER_BYTES) // found.entry_bytes
                has_pages = os.fstat(pages_fd).st_size >= count * found.record_bytes
                if count < found.capacity and has_pages:
                    writer = cls(path, (entries_fd, pages_fd), found, count)
                    writer.cut()
                    return writer
        except BaseException:
            _close(entries_fd, pages_fd)
            raise
        _close(entries_fd, pages_fd)
        return None

    @property
    def is_full(self) -> bool:
        """Whether no further block may go there."""
        return self.count >= self.header.capacity

    @property
    def is_gone(self) -> bool:
        """Whether somebody has removed the files."""
        return not all(os.fstat(fd).st_nlink for fd in (self._entries_fd, self._pages_fd))

    def append(self, entry: bytes, pages: tuple[bytes, ...]) -> None:
        """Write a block at the end.

        Raises:
            OSError: there was no room for all of it; `cut` removes what was written.
        """
        _write_all(self._pages_fd, pages, self.count * self.header.record_bytes)
        _write_all(self._entries_fd, [entry], self._entries_end)
        self.count += 1

    def cut(self) -> None:
        """Remove whatever lies behind the last whole block.

        Raises:
            OSError: the disk refuses.
        """
        os.ftruncate(self._entries_fd, self._entries_end)
        os.ftruncate(self._pages_fd, self.count * self.header.record_bytes)

    def close(self) -> None:
        """Give up the lock; what is there stays. An empty segment is removed."""
        if not self.count:
            with suppress(OSError):
                remove(self.path)
        _close(self._entries_fd, self._pages_fd)

    @property
    def _entries_end(self) -> int:
        return HEADER_BYTES + self.count * self.header.entry_bytes


def read_entries(path: Path, start: int = 0) -> tuple[SegmentHeader, bytes] | None:
    """The header and the whole entries of a segment whose pages are there.

    Args:
        path: of the .idx file.
        start: entries to leave out.

    Returns:
        None if it is no segment.

    Raises:
        OSError: a file cannot be read.
    """
    fd = os.open(path, _READ)
    try:
        header = SegmentHeader.unpack(os.pread(fd, HEADER_BYTES, 0))
        if header is None:
            return None
        present = (os.fstat(fd).st_size - HEADER_BYTES) // header.entry_bytes
        num_pages = path.with_suffix(PAGES_SUFFIX).stat().st_size // header.record_bytes
        count = max(min(present, num_pages, header.capacity) - start, 0)
        where = HEADER_BYTES + start * header.entry_bytes
        entries = os.pread(fd, count * header.entry_bytes, where)
    finally:
        os.close(fd)
    return header, entries[: len(entries) // header.entry_bytes * header.entry_bytes]


def open_pages(path: Path) -> int:
    """A file descriptor to read the pages of a segment.

    Args:
        path: of the .idx file.

    Raises:
        OSError: there is none.
    """
    return os.open(path.with_suffix(PAGES_SUFFIX), _READ)


def strike(path: Path, entry_bytes: int, position: int) -> None:
    """Make an entry unreadable for everybody: its pages are damaged.

    Raises:
        OSError: the file cannot be written to.
    """
    status = path.stat()
    fd = os.open(path, _WRITE)
    try:
        where = HEADER_BYTES + position * entry_bytes
        if where + entry_bytes <= os.fstat(fd).st_size:
            os.pwrite(fd, bytes(entry_bytes), where)
            os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))  # that was no use of it
    finally:
        os.close(fd)


def is_live(path: Path) -> bool:
    """Whether a process appends to a segment.

    Raises:
        OSError: the file cannot be opened, or the file system has no locks.
    """
    fd = os.open(path, _READ)
    try:
        return not lock(fd)
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Remove a segment and free its space, whoever still has it open.

    Args:
        path: of the .idx file, which need not exist.

    Raises:
        OSError: a file cannot be removed.
    """
    pages = path.with_suffix(PAGES_SUFFIX)
    path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        os.truncate(pages, 0)
    pages.unlink(missing_ok=True)


def lock(fd: int) -> bool:
    """Take the lock of an open file; False if somebody has it.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alike(found: SegmentHeader, wanted: SegmentHeader) -> bool:
    return replace(found, capacity=wanted.capacity) == wanted


def _write_all(fd: int, parts: tuple[bytes, ...] | list[bytes], offset: int) -> None:
    size = sum(map(len, parts))
    if os.pwritev(fd, parts, offset) != size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)
