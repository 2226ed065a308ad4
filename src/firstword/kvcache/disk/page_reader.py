"""Reading pages of segments with a few files kept open.

Not here: whether a page is what it should be (store).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

from firstword.kvcache.disk.entry_index import Place
from firstword.kvcache.disk.record import RecordLayout
from firstword.kvcache.disk.segment import ENTRIES_SUFFIX, open_pages

_MAX_OPEN = 8
_CLOSE_SECONDS = 1.0


class PageReader:
    """The pages of one store's segments.

    Args:
        folder: of the segments.
        layout: of their records.
    """

    def __init__(self, folder: Path, layout: RecordLayout) -> None:
        self._folder = folder
        self._layout = layout
        self._fds: OrderedDict[str, int] = OrderedDict()  # used last, last
        self._busy = threading.Lock()

    def read(self, place: Place, group: int) -> bytes:
        """The page of a block in a group; shorter where the file ends before.

        Raises:
            OSError: the file is gone, or the disk fails.
        """
        size = self._layout.page_bytes[group]
        start = self._layout.page_start(place.position, group)
        with self._busy:
            return os.pread(self._fd(place.segment), size, start)

    def close(self) -> None:
        """Close all files; a read that hangs keeps them open."""
        if self._busy.acquire(timeout=_CLOSE_SECONDS):
            while self._fds:
                os.close(self._fds.popitem()[1])
            self._busy.release()

    def _fd(self, segment: str) -> int:
        if segment in self._fds:
            self._fds.move_to_end(segment)
            return self._fds[segment]
        while len(self._fds) >= _MAX_OPEN:
            os.close(self._fds.popitem(last=False)[1])
        fd = open_pages(self._folder / f"{segment}{ENTRIES_SUFFIX}")
        self._fds[segment] = fd
        return fd
