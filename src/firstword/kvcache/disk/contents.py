"""What one folder of segments holds, as far as this process has looked; any thread may ask.

Not here: pages (page_reader), and what is written (block_writer).
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from firstword.kvcache.disk.departures import read_departures
from firstword.kvcache.disk.entry_index import EntryIndex, Found, Place
from firstword.kvcache.disk.record import RecordLayout
from firstword.kvcache.disk.segment import (
    ENTRIES_SUFFIX,
    HEADER_BYTES,
    SegmentHeader,
    read_entries,
)
from firstword.kvcache.tier import Departure

_SETTLED_NS = 2 * 10**9  # a folder changed this long ago shows any later change in its time


class StoreContents:
    """The blocks of one folder, and those that were there once.

    Args:
        folder: of the segments; it need not exist.
        layout: of their records; segments of another are passed over.
    """

    def __init__(self, folder: Path, layout: RecordLayout) -> None:
        self._folder = folder
        self._layout = layout
        self._index_lock = threading.Lock()
        self._folder_lock = threading.Lock()
        self._index = EntryIndex(layout)
        self._capacities: dict[str, int] = {}  # of the segments
        self._departures: dict[bytes, Departure] = {}
        self._seen_ns = 0  # when the folder changed, as of the last look

    def __len__(self) -> int:
        return len(self._index)

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Whether the block of that key, with these tokens, is there."""
        with self._index_lock:
            return self._index.holds(key, token_ids)

    def find(self, key: bytes, token_ids: tuple[int, ...]) -> Found | None:
        """Where the block of that key, with these tokens, lies."""
        with self._index_lock:
            return self._index.find(key, token_ids)

    def place(self, key: bytes) -> Place | None:
        """Where the block of that key lies."""
        with self._index_lock:
            return self._index.place(key)

    def children(self, parent: bytes, limit: int) -> list[tuple[int, ...]]:
        """Tokens of the blocks that follow on `parent`: of the newest `limit`."""
        with self._index_lock:
            return self._index.children(parent, limit)

    def departure(self, key: bytes) -> Departure | None:
        """Why a block is not there any more; None where nothing is known of it."""
        with self._index_lock:
            return self._departures.get(key)

    def forget(self, key: bytes) -> None:
        """Let a block be found no more."""
        with self._index_lock:
            self._index.forget(key)

    def add(self, segment: str, header: SegmentHeader, start: int, entries: bytes) -> None:
        """Take in entries of a segment, from position `start` on."""
        with self._index_lock:
            self._capacities[segment] = header.capacity
            self._index.extend(segment, start, entries)

    def refresh(self) -> None:
        """Take in what has changed since; little is done where nothing has.

        Raises:
            OSError: the folder cannot be read.
        """
        with self._folder_lock:
            changed_ns = os.stat(self._folder).st_mtime_ns
            if changed_ns == self._seen_ns:
                self._read_growth()
                return
            self._read_all()
            settled = time.time_ns() - changed_ns > _SETTLED_NS
            self._seen_ns = changed_ns if settled else 0

    def _read_all(self) -> None:
        """Compare the segments that are known with those that are there."""
        paths = {path.stem: path for path in self._folder.glob(f"*{ENTRIES_SUFFIX}")}
        with self._index_lock:
            for name in self._index.segments:
                if name not in paths:
                    self._index.drop(name)
                    self._capacities.pop(name, None)
        for path in sorted(paths.values()):
            self._read(path)
        departures = read_departures(self._folder)
        with self._index_lock:
            self._departures = departures

    def _read_growth(self) -> None:
        """Look for new entries where there is room for them."""
        for name, capacity in list(self._capacities.items()):
            count = self._index.count(name)
            if count < capacity:
                path = self._folder / f"{name}{ENTRIES_SUFFIX}"
                if path.stat().st_size > HEADER_BYTES + count * self._layout.entry_bytes:
                    self._read(path)

    def _read(self, path: Path) -> None:
        """Take in what is new in a segment."""
        start = self._index.count(path.stem)
        if start and start >= self._capacities.get(path.stem, 0):
            return
        with suppress(OSError):  # removed since
            read = read_entries(path, start)
            if read is None or read[0] != SegmentHeader.of(self._layout, read[0].capacity):
                return
            self.add(path.stem, read[0], start, read[1])
