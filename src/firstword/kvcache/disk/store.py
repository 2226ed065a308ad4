"""The blocks of one model that are kept on the disk, by all its processes together.

Whatever goes wrong is a block that is not there, never an error: a full disk, a file that was cut,
changed or removed, a folder that cannot be written to. Not here: what is written and loaded when.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from firstword.kvcache.disk.departures import read_departures
from firstword.kvcache.disk.elsewhere import first_blocks
from firstword.kvcache.disk.entry_index import EntryIndex, Found
from firstword.kvcache.disk.home import KVHome, reserved_bytes
from firstword.kvcache.disk.page_reader import PageReader
from firstword.kvcache.disk.record import (
    RecordLayout,
    StoredBlock,
    StoreIdentity,
    pack_tokens,
    page_digest,
)
from firstword.kvcache.disk.segment import (
    ENTRIES_SUFFIX,
    HEADER_BYTES,
    SegmentHeader,
    SegmentWriter,
    read_entries,
    strike,
)
from firstword.kvcache.tier import Departure

MAX_SEGMENT_BYTES = 64 * 2**20
SEGMENTS_PER_CAP = 64
"""A segment takes at most this part of the cap, so that little is lost when one gives way."""
_PAUSE_SECONDS = 60.0
_REFRESH_SECONDS = 1.0
_TOUCH_SECONDS = 60.0
_SETTLED_NS = 2 * 10**9  # a folder changed this long ago shows any later change in its time
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a store holds.

    Args:
        num_blocks: blocks that can be found.
        num_bytes: what they take on the disk.
        max_bytes: what the blocks of all models may take.
        num_failed_writes: blocks that could not be written since the store was opened.
    """

    num_blocks: int
    num_bytes: int
    max_bytes: int
    num_failed_writes: int


class DiskStore:
    """Full blocks of one model and its settings, with the pages of all KV groups in each.

    `append` and `close` are for one thread, `read` for one other; the rest may be called by any.
    Nothing here raises OSError.

    Args:
        home: the folder of all models' blocks; it need not exist yet.
        identity: whose blocks these are.
        max_bytes: what the blocks of all models may take; what was used least recently gives way.

    Attributes:
        notice: why nothing is written, for the user; None if all is well.
    """

    def __init__(self, home: Path, identity: StoreIdentity, max_bytes: int) -> None:
        self.notice: str | None = None
        self._home = KVHome(home)
        self._identity = identity
        self._folder = home / identity.digest.hex()
        self._max_bytes = max_bytes
        self._layout = RecordLayout(identity.page_bytes, identity.block_size)
        self._header = SegmentHeader.of(self._layout, self._segment_capacity())
        self._lock = threading.Lock()
        self._index = EntryIndex(self._layout)
        self._capacities: dict[str, int] = {}  # of the segments
        self._departures: dict[bytes, Departure] = {}
        self._elsewhere: frozenset[bytes] | None = None
        self._seen_ns = 0  # when the folder changed, as of the last look
        self._writer: SegmentWriter | None = None
        self._paused_until = 0.0
        self._refreshed_at = 0.0
        self._num_failed_writes = 0
        self._reader = PageReader(self._folder, self._layout)
        self._touched: dict[str, float] = {}
        self._open()

    @property
    def usage(self) -> Usage:
        """What is kept now."""
        each = self._layout.record_bytes + self._layout.entry_bytes
        count = len(self._index)
        return Usage(count, count * each, self._max_bytes, self._num_failed_writes)

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Whether the block of that key, with these tokens, is kept."""
        with self._lock:
            return self._index.holds(key, token_ids)

    def children(self, parent: bytes) -> list[tuple[int, ...]]:
        """Tokens of the kept blocks that follow on the block `parent`."""
        with self._lock:
            return self._index.children(parent)

    def departure(self, key: bytes) -> Departure | None:
        """Why a block that was kept once is not any more; None where nothing is known of it."""
        with self._lock:
            return self._departures.get(key)

    def known_elsewhere(self, token_ids: tuple[int, ...]) -> bool:
        """Whether a text beginning with this block is kept for another model or other settings.

        The first call reads the entries of all other stores; what they take in later is not seen.
        """
        if self._elsewhere is None:
            others = [folder for folder in self._home.folders() if folder != self._folder]
            self._elsewhere = first_blocks(others)
        return pack_tokens(token_ids) in self._elsewhere

    def refresh(self) -> None:
        """Take in what other processes have written or removed since."""
        with suppress(OSError):
            changed_ns = os.stat(self._folder).st_mtime_ns
            if changed_ns != self._seen_ns:
                self._scan()
                settled = time.time_ns() - changed_ns > _SETTLED_NS
                self._seen_ns = changed_ns if settled else 0
            else:
                self._take_in_growth()

    def append(self, block: StoredBlock) -> bool:
        """Keep a block.

        Returns:
            Whether it is kept now: not where the disk is full, the cap leaves no room or the
            folder cannot be written to. After a failure nothing is written for a minute.
        """
        assert self._layout.fits(block), "a block of another model or other settings"
        now = time.monotonic()
        if now - self._refreshed_at > _REFRESH_SECONDS:
            self._refreshed_at = now
            self.refresh()
        if self.holds(block.key, block.token_ids):
            return True
        if self.notice is not None or now < self._paused_until:
            return False
        try:
            kept = self._write(self._layout.pack(block), block.pages)
        except OSError:
            kept = False
        if not kept:
            self._num_failed_writes += 1
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
        return kept

    def read(
        self, key: bytes, token_ids: tuple[int, ...], groups: Sequence[int]
    ) -> list[bytes] | None:
        """The pages of a block.

        Args:
            key: its name.
            token_ids: its tokens.
            groups: indices of the KV groups whose pages are wanted.

        Returns:
            The pages in the order of `groups`, each as it was written; None where one of them is
            gone or damaged, and then the block is not held any more.
        """
        with self._lock:
            found = self._index.find(key, token_ids)
        if found is None:
            return None
        pages = self._verified(found, groups)
        if pages is None:
            with self._lock:
                self._index.forget(key)
        else:
            self._touch(found.place.segment)
        return pages

    def close(self) -> None:
        """Give up the segment that is written to, for other processes to go on with."""
        self._seal()
        self._reader.close()

    def _segment_capacity(self) -> int:
        """Blocks in one segment, at least one."""
        each = self._layout.record_bytes + self._layout.entry_bytes
        return max(min(MAX_SEGMENT_BYTES, self._max_bytes // SEGMENTS_PER_CAP) // each, 1)

    def _open(self) -> None:
        if reserved_bytes(self._header) > self._max_bytes:
            self.notice = _not_kept(
                f"a block of {self._layout.block_size} tokens takes "
                f"{self._layout.record_bytes} bytes and {self._max_bytes} are allowed"
            )
        try:
            self._home.prepare()
        except OSError as error:
            self.notice = _not_kept(str(error))
            return
        try:
            with self._home.alone():
                self._home.make_room(self._max_bytes)
        except OSError as error:
            self.notice = _not_kept(str(error))
        self.refresh()

    def _scan(self) -> None:
        """Compare the segments that are known with those that are there."""
        paths = {path.stem: path for path in self._folder.glob(f"*{ENTRIES_SUFFIX}")}
        with self._lock:
            for name in self._index.segments:
                if name not in paths:
                    self._index.drop(name)
                    self._capacities.pop(name, None)
        for path in sorted(paths.values()):
            self._take_in(path)
        departures = read_departures(self._folder)
        with self._lock:
            self._departures = departures

    def _take_in_growth(self) -> None:
        for name, capacity in list(self._capacities.items()):
            count = self._index.count(name)
            if count < capacity:
                path = self._folder / f"{name}{ENTRIES_SUFFIX}"
                if path.stat().st_size > HEADER_BYTES + count * self._layout.entry_bytes:
                    self._take_in(path)

    def _take_in(self, path: Path) -> None:
        """Add what is new in a segment to the index."""
        name = path.stem
        start = self._index.count(name)
        if start and start >= self._capacities.get(name, 0):
            return
        try:
            read = read_entries(path, start)
        except OSError:
            return
        if read is None or read[0] != SegmentHeader.of(self._layout, read[0].capacity):
            return
        with self._lock:
            self._capacities[name] = read[0].capacity
            self._index.extend(name, start, read[1])

    def _write(self, entry: bytes, pages: tuple[bytes, ...]) -> bool:
        """Write a block, if need be in the place of what was used least recently."""
        try:
            writer = self._ready_writer()
            if writer is None:
                return False
            writer.append(entry, pages)
        except OSError as error:
            self._abandon()
            if error.errno not in _NO_ROOM or not self._evict():
                raise
            writer = self._ready_writer()
            if writer is None:
                return False
            try:
                writer.append(entry, pages)
            except OSError:
                self._abandon()
                raise
        with self._lock:
            name = writer.path.stem
            self._capacities[name] = writer.header.capacity
            self._index.extend(name, writer.count - 1, entry)
        return True

    def _ready_writer(self) -> SegmentWriter | None:
        """A segment with room for one more block; None where the cap leaves none."""
        if self._writer is not None and (self._writer.is_full or self._writer.is_gone):
            self._seal()
        if self._writer is None:
            self._home.prepare()
            with self._home.alone():
                self._writer = self._home.begin(self._identity, self._header, self._max_bytes)
            self._scan()
        return self._writer

    def _evict(self) -> bool:
        """Give back the space of one segment: the disk is full."""
        with self._home.alone():
            evicted = self._home.make_room(self._max_bytes, num_least=1)
        self._scan()
        return evicted

    def _abandon(self) -> None:
        """Leave a segment after a write that failed."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.cut()
        self._seal()

    def _seal(self) -> None:
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
            self._writer = None

    def _verified(self, found: Found, groups: Sequence[int]) -> list[bytes] | None:
        pages = []
        try:
            for group in groups:
                page = self._reader.read(found.place, group)
                if page_digest(page) != found.digests[group]:
                    self._strike(found)
                    return None
                pages.append(page)
        except OSError:
            return None
        return pages

    def _strike(self, found: Found) -> None:
        """Spare every other process, and the next start, the same finding."""
        path = self._folder / f"{found.place.segment}{ENTRIES_SUFFIX}"
        with suppress(OSError):
            strike(path, self._layout.entry_bytes, found.place.position)

    def _touch(self, segment: str) -> None:
        """Say that a segment was used, once a minute."""
        now = time.monotonic()
        if now - self._touched.get(segment, -_TOUCH_SECONDS) >= _TOUCH_SECONDS:
            self._touched[segment] = now
            with suppress(OSError):
                os.utime(self._folder / f"{segment}{ENTRIES_SUFFIX}")


def _not_kept(reason: str) -> str:
    return (
        f"prompts are not kept on the disk: {reason}. After a restart they are read again; "
        "--kv-disk 0 does so without this note"
    )
