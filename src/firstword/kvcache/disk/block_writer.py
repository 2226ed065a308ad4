"""Writing blocks, one segment after the other, within the cap; a failure is a pause.

Not here: which blocks are worth it (store), and which segments give way (home).
"""

from __future__ import annotations

import errno
import threading
import time
from contextlib import suppress

from firstword.kvcache.disk.contents import StoreContents
from firstword.kvcache.disk.home import KVHome, reserved_bytes
from firstword.kvcache.disk.record import RecordLayout, StoredBlock, StoreIdentity
from firstword.kvcache.disk.segment import SegmentHeader, SegmentWriter

MAX_SEGMENT_BYTES = 64 * 2**20
SEGMENTS_PER_CAP = 64
"""A segment takes at most this part of the cap, so that little is lost when one gives way."""
PAUSE_SECONDS = 60.0
"""After a failure nothing is written for so long."""
_CLOSE_SECONDS = 1.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class BlockWriter:
    """What one process writes to one store.

    Args:
        home: the folder of all stores.
        identity: whose blocks these are.
        contents: is told of what was written and removed.
        max_bytes: the cap of all stores together.

    Attributes:
        num_failed: blocks that could not be written.
        fits_cap: whether the cap leaves room for a single block.
    """

    def __init__(
        self, home: KVHome, identity: StoreIdentity, contents: StoreContents, max_bytes: int
    ) -> None:
        self.num_failed = 0
        self._home = home
        self._identity = identity
        self._contents = contents
        self._max_bytes = max_bytes
        self._layout = RecordLayout(identity.page_bytes, identity.block_size)
        each = self._layout.record_bytes + self._layout.entry_bytes
        capacity = max(min(MAX_SEGMENT_BYTES, max_bytes // SEGMENTS_PER_CAP) // each, 1)
        self._header = SegmentHeader.of(self._layout, capacity)
        self.fits_cap = reserved_bytes(self._header) <= max_bytes
        self._segment: SegmentWriter | None = None
        self._paused_until = 0.0
        self._busy = threading.Lock()
        self._is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether there is any use in a `write` now."""
        paused = time.monotonic() < self._paused_until
        return self.fits_cap and not paused and not self._is_closed

    def write(self, block: StoredBlock) -> bool:
        """Write a block.

        Returns:
            Whether it is on the disk.
        """
        with self._busy:
            return self.is_ready and self._write(block)

    def close(self) -> None:
        """Leave the segment to whoever goes on with it, and write no more.

        A write that hangs keeps it until the process ends.
        """
        self._is_closed = True
        if self._busy.acquire(timeout=_CLOSE_SECONDS):
            self._leave()
            self._busy.release()

    def _write(self, block: StoredBlock) -> bool:
        entry = self._layout.pack(block)
        try:
            written = self._append(entry, block.pages)
        except OSError as error:
            written = False
            with suppress(OSError):
                if error.errno in _NO_ROOM and self._evict():
                    written = self._append(entry, block.pages)
        if not written:
            self.num_failed += 1
            self._paused_until = time.monotonic() + PAUSE_SECONDS
        return written

    def _leave(self) -> None:
        """Give up the segment."""
        if self._segment is not None:
            with suppress(OSError):
                self._segment.close()
            self._segment = None

    def _append(self, entry: bytes, pages: tuple[bytes, ...]) -> bool:
        try:
            segment = self._open_segment()
            if segment is None:
                return False
            segment.append(entry, pages)
        except OSError:
            self._abandon()
            raise
        self._contents.add(segment.path.stem, segment.header, segment.count - 1, entry)
        return True

    def _open_segment(self) -> SegmentWriter | None:
        """A segment with room for one more block; None where the cap leaves none."""
        if self._segment is not None and (self._segment.is_full or self._segment.is_gone):
            self._leave()
        if self._segment is None:
            self._home.prepare()
            with self._home.alone():
                self._segment = self._home.begin(self._identity, self._header, self._max_bytes)
            self._contents.refresh()
        return self._segment

    def _evict(self) -> bool:
        """Give back the space of one segment: the disk is full."""
        with self._home.alone():
            evicted = self._home.make_room(self._max_bytes, num_least=1)
        self._contents.refresh()
        return evicted

    def _abandon(self) -> None:
        """Leave a segment after a write that failed."""
        if self._segment is not None:
            with suppress(OSError):
                self._segment.cut()
        self._leave()
