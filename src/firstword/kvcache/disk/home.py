"""The folder of all models' KV blocks: its lock, its cap, what gives way, what is too old.

    <home>/lock                   held (flock) while somebody begins or removes a segment
    <home>/<identity>/about.json  whose blocks these are, for people
    <home>/<identity>/*.idx *.kv  segments
    <home>/<identity>/departed    what was removed, and why

The cap holds over all models and processes: a segment that is being written counts with all that
it may hold, any other with what it holds. Not here: what is in a segment (segment), and which
blocks there are (store).
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from firstword.kvcache.disk.departures import FILE_NAME, record_departures
from firstword.kvcache.disk.record import StoreIdentity
from firstword.kvcache.disk.segment import (
    ENTRIES_SUFFIX,
    PAGES_SUFFIX,
    SegmentHeader,
    SegmentWriter,
    is_live,
    lock,
    read_entries,
    remove,
)
from firstword.kvcache.tier import Departure

MAX_AGE_SECONDS = 30 * 86_400.0
"""A segment that nobody used for longer is removed."""
ABOUT = "about.json"
_LOCK = "lock"
_LOCK_SECONDS = 2.0
_UNIT = 4096  # files take whole blocks of the disk
_CLOCK_SLACK = 3600.0


@dataclass(frozen=True, slots=True)
class SegmentStatus:
    """A segment as it counts against the cap.

    Args:
        path: of its .idx file.
        num_bytes: what it takes, or may take while a process writes to it.
        used_at: when it was used last, in seconds since 1970.
        is_live: whether a process writes to it.
    """

    path: Path
    num_bytes: int
    used_at: float
    is_live: bool


class KVHome:
    """The folder; it need not exist yet.

    Args:
        path: where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Make the folder, for its owner alone.

        Raises:
            OSError: it cannot be made or made private, or it is somebody else's.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.path.stat()
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"{self.path} belongs to another user")
        if status.st_mode & 0o077:
            self.path.chmod(0o700)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of the folder.

        Raises:
            OSError: it cannot be had within two seconds, or there are no locks.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.path / _LOCK, flags, 0o600)
        try:
            deadline = time.monotonic() + _LOCK_SECONDS
            while not lock(fd):
                if time.monotonic() > deadline:
                    raise BlockingIOError(errno.EAGAIN, f"{self.path} is locked by another process")
                time.sleep(0.005)
            yield
        finally:
            os.close(fd)

    def begin(
        self, identity: StoreIdentity, header: SegmentHeader, max_bytes: int
    ) -> SegmentWriter | None:
        """A segment to write to, an unfinished one rather than a new one. The home is locked.

        Args:
            identity: whose blocks go there.
            header: of a new one.
            max_bytes: the cap; what was used least recently gives way.

        Returns:
            None where the cap leaves no room.

        Raises:
            OSError: nothing can be written.
        """
        folder = self.path / identity.fingerprint
        folder.mkdir(mode=0o700, exist_ok=True)
        _write_about(folder, identity)
        writer = _adopt(folder, header) or SegmentWriter.create(folder, header)
        try:
            if self.make_room(max_bytes):
                return writer
        except BaseException:
            writer.close()
            raise
        writer.close()
        return None

    def make_room(self, max_bytes: int, num_least: int = 0) -> bool:
        """Remove what is too old, then what was used least recently. The home is locked.

        Args:
            max_bytes: what all together may take.
            num_least: segments to remove even so, but for the one used last.

        Returns:
            Whether it is enough.

        Raises:
            OSError: something cannot be removed.
        """
        now = time.time()
        segments = sorted(self.survey(now), key=lambda segment: segment.used_at)
        total = self._other_bytes() + sum(segment.num_bytes for segment in segments)
        for segment in segments:
            too_old = segment.used_at < now - MAX_AGE_SECONDS
            wanted = total > max_bytes or (num_least > 0 and segment is not segments[-1])
            if segment.is_live or not (too_old or wanted):
                continue
            total -= segment.num_bytes
            total += _depart(segment.path, "expired" if too_old else "evicted")
            num_least -= 1
        return total <= max_bytes and num_least <= 0

    def survey(self, now: float) -> list[SegmentStatus]:
        """All segments; halves of one that no process has begun are removed. The home is locked.

        Args:
            now: in seconds since 1970. A segment used later than that was used before the clock
                was set back; its age begins anew.

        Raises:
            OSError: a folder cannot be read, or there are no locks.
        """
        found = []
        for folder in self.folders():
            for path in sorted(folder.glob(f"*{PAGES_SUFFIX}")):
                if not path.with_suffix(ENTRIES_SUFFIX).exists():
                    remove(path.with_suffix(ENTRIES_SUFFIX))
            for path in sorted(folder.glob(f"*{ENTRIES_SUFFIX}")):
                with suppress(FileNotFoundError):  # cleared by another process
                    found.append(_status(path, now))
        return found

    def folders(self) -> list[Path]:
        """The folders of all models and settings; none if there is no home."""
        try:
            with os.scandir(self.path) as entries:
                return [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def clear(self) -> int:
        """Remove everything; who writes goes on with a new segment.

        Returns:
            Bytes that were removed.

        Raises:
            OSError: something cannot be removed.
        """
        if not self.path.is_dir():
            return 0
        removed = 0
        with self.alone():
            for folder in self.folders():
                files = [*folder.glob(f"*{ENTRIES_SUFFIX}"), *folder.glob(f"*{PAGES_SUFFIX}")]
                removed += sum(map(_size, files))
                for path in files:
                    remove(path.with_suffix(ENTRIES_SUFFIX))
                for name in (ABOUT, FILE_NAME):
                    (folder / name).unlink(missing_ok=True)
                with suppress(OSError):  # of somebody's file that is none of ours
                    folder.rmdir()
        return removed

    def _other_bytes(self) -> int:
        """What lies beside the segments."""
        files = [path for folder in self.folders() for path in folder.iterdir()]
        segments = (ENTRIES_SUFFIX, PAGES_SUFFIX)
        return sum(_rounded(_size(path)) for path in files if path.suffix not in segments)


def reserved_bytes(header: SegmentHeader) -> int:
    """What a segment may take on the disk."""
    entries = header.num_bytes(0) + header.capacity * header.entry_bytes
    return _rounded(entries) + _rounded(header.capacity * header.record_bytes)


def _status(path: Path, now: float) -> SegmentStatus:
    status = path.stat()
    used_at = status.st_mtime
    if used_at > now + _CLOCK_SLACK:
        used_at = now
        with suppress(OSError):
            os.utime(path)
    live = is_live(path)
    num_bytes = _rounded(status.st_size) + _rounded(_size(path.with_suffix(PAGES_SUFFIX)))
    if live:
        read = read_entries(path)
        num_bytes = num_bytes if read is None else max(num_bytes, reserved_bytes(read[0]))
    return SegmentStatus(path, num_bytes, used_at, live)


def _depart(path: Path, cause: Departure) -> int:
    """Remove a segment and remember what was in it; returns the bytes that this takes."""
    keys: list[bytes] = []
    with suppress(OSError):
        read = read_entries(path)
        if read is not None:
            header, entries = read
            keys = [names[0] for names in header.layout.keys(entries) if names is not None]
    remove(path)
    memory = path.parent / FILE_NAME
    before = _rounded(_size(memory))
    with suppress(OSError):  # the disk is full even so
        record_departures(path.parent, keys, cause)
    return _rounded(_size(memory)) - before


def _adopt(folder: Path, header: SegmentHeader) -> SegmentWriter | None:
    """An unfinished segment that nobody writes to, the one used last."""
    paths = sorted(folder.glob(f"*{ENTRIES_SUFFIX}"), key=_mtime, reverse=True)
    for path in paths:
        with suppress(OSError):
            writer = SegmentWriter.adopt(path, header)
            if writer is not None:
                return writer
    return None


def _write_about(folder: Path, identity: StoreIdentity) -> None:
    path = folder / ABOUT
    if path.exists():
        return
    about = asdict(identity) | {"digest": identity.fingerprint}
    draft = folder / f"{ABOUT}.draft"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(about, file, indent=1)
    draft.replace(path)


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _rounded(num_bytes: int) -> int:
    return -(-num_bytes // _UNIT) * _UNIT
