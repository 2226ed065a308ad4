"""The disk as the tier below the pool: one thread writes, another reads, the step loop waits for
neither.

Not here: files and what is trusted in them (store), and what is worth loading (engine.prefetch).
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from firstword.kvcache.disk.record import StoredBlock
from firstword.kvcache.disk.store import DiskStore
from firstword.kvcache.tier import BlockName, BlockRead, Departure, FinishedLoad

_log = logging.getLogger("firstword.kvcache")

QUEUE_BYTES = 32 * 2**20
"""Pages that wait to be written, at most; a disk that keeps up has a few of them waiting."""

CLOSE_SECONDS = 5.0
"""So long a process that ends waits for what is to be written."""

NOMINAL_BYTES_PER_SECOND = 400e6
"""Taken for the disk's speed until a load has shown it."""

_LOAD_SECONDS = 0.5e-3  # of a load, whatever its size: two threads wake each other
_NEW_SHARE = 0.5  # of the last load in the speed


class Pages(Protocol):
    """The content of the pool's blocks, whole pages at a time."""

    def read_block(self, block: int) -> bytes:
        """The whole content of a block."""
        ...

    def write_block(self, block: int, content: bytes) -> None:
        """Set the whole content of a block."""
        ...


@dataclass(frozen=True)
class PageSizes:
    """Bytes of pages.

    Args:
        groups: what each KV group uses of a page.
        pool: of a page of the pool, at least the largest of them.
    """

    groups: tuple[int, ...]
    pool: int


class DiskTier:
    """A `DiskStore` that is written and read on threads (kvcache.tier.BlockTier).

    The threads start when there is something to do and end with the tier.

    Args:
        store: the files.
        pages: of the pool.
        sizes: of its pages.
    """

    def __init__(self, store: DiskStore, pages: Pages, sizes: PageSizes) -> None:
        self.store = store
        self._pages, self._sizes = pages, sizes
        self._writer = _Writer(store)
        self._reader = _Reader(store, pages, sizes)
        # Threads know nothing of the tier, so it goes, and its memory, when nobody needs it; and
        # when the interpreter ends.
        self._end = weakref.finalize(self, _close, self._writer, self._reader, store)

    @property
    def bytes_per_second(self) -> float:
        """How fast blocks are read and verified, as far as is known."""
        return self._reader.bytes_per_second

    def refresh(self) -> None:
        """Take in what other processes have kept since."""
        self.store.refresh()

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Whether the block of that key, with these tokens, is on the disk."""
        return self.store.holds(key, token_ids)

    def children(self, parent: bytes, limit: int) -> Iterable[tuple[int, ...]]:
        """Tokens of the blocks on the disk that follow on the block `parent`: the newest."""
        return self.store.children(parent, limit)

    def departure(self, key: bytes) -> Departure | None:
        """Why a block that was on the disk is not any more; None where that is not known."""
        return self.store.departure(key)

    def known_elsewhere(self, token_ids: tuple[int, ...]) -> bool:
        """Whether a text beginning with this block is kept for other models or settings."""
        return self.store.known_elsewhere(token_ids)

    def save(self, name: BlockName, blocks: Sequence[int]) -> bool:
        """Copy a block to be written; False where too much waits."""
        if not self.store.accepts_blocks:
            return True  # it would be dropped: its pages need not be copied for that
        if not self._writer.has_room(sum(self._sizes.groups)):
            return False
        pages = tuple(
            self._pages.read_block(block)[:size]
            for block, size in zip(blocks, self._sizes.groups, strict=True)
        )
        self._writer.put(StoredBlock(name.key, name.parent, name.token_ids, pages))
        return True

    def touch(self, key: bytes) -> None:
        """Say that a block on the disk was used; at most one call a minute and file goes there."""
        self.store.touch(key)

    def load(self, number: int, reads: Sequence[BlockRead]) -> None:
        """Begin to read blocks into the pool, in their order, up to the first that fails."""
        self._reader.put(number, reads)

    def finished_loads(self) -> list[FinishedLoad]:
        """Loads that have ended since the last call."""
        return self._reader.take_finished()

    def wait(self, seconds: float) -> None:
        """Wait until a load ends, or that long."""
        self._reader.wait(seconds)

    def load_ms(self, num_pages: int) -> float:
        """Predicted milliseconds to read so many pages."""
        num_bytes = num_pages * max(self._sizes.groups)
        return (_LOAD_SECONDS + num_bytes / self.bytes_per_second) * 1e3

    def close(self) -> None:
        """Write what waits, within a time limit, and end."""
        self._end()


class _Writer:
    """The thread that appends blocks to the store."""

    def __init__(self, store: DiskStore) -> None:
        self._store = store
        self._blocks: SimpleQueue[StoredBlock | None] = SimpleQueue()
        self._waiting: set[bytes] = set()  # keys
        self._thread: threading.Thread | None = None

    def has_room(self, num_bytes: int) -> bool:
        """Whether another block of that size may wait; one always may."""
        return not self._waiting or (len(self._waiting) + 1) * num_bytes <= QUEUE_BYTES

    def put(self, block: StoredBlock) -> None:
        if block.key in self._waiting:
            return
        self._waiting.add(block.key)
        self._blocks.put(block)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kv writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (block := self._blocks.get()) is not None:
            self._store.append(block)
            self._waiting.discard(block.key)

    def close(self, seconds: float) -> None:
        if self._thread is not None:
            self._blocks.put(None)
            self._thread.join(seconds)


class _Reader:
    """The thread that reads blocks into pages of the pool."""

    def __init__(self, store: DiskStore, pages: Pages, sizes: PageSizes) -> None:
        self.bytes_per_second = NOMINAL_BYTES_PER_SECOND
        self._store, self._pages, self._sizes = store, pages, sizes
        self._loads: SimpleQueue[tuple[int, Sequence[BlockRead]] | None] = SimpleQueue()
        self._finished: deque[FinishedLoad] = deque()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None

    def put(self, number: int, reads: Sequence[BlockRead]) -> None:
        self._loads.put((number, reads))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kv reader", daemon=True)
            self._thread.start()

    def take_finished(self) -> list[FinishedLoad]:
        self._news.clear()  # first: one that ends now is taken, or announced again
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def wait(self, seconds: float) -> None:
        self._news.wait(seconds)

    def _run(self) -> None:
        while (load := self._loads.get()) is not None:
            number, reads = load
            num_reads = 0
            try:
                num_reads = self._read_all(reads)
            except Exception:  # whoever waits for it must not wait for ever
                _log.exception("KV blocks could not be read from the disk; they are computed")
            self._finished.append(FinishedLoad(number, num_reads))
            self._news.set()

    def _read_all(self, reads: Sequence[BlockRead]) -> int:
        """Read blocks up to the first that fails; returns how many."""
        start, num_bytes, num_reads = time.perf_counter(), 0, 0
        for read in reads:
            size = self._read(read)
            if size is None:
                break
            num_reads, num_bytes = num_reads + 1, num_bytes + size
        self._measure(num_bytes, time.perf_counter() - start)
        return num_reads

    def _read(self, read: BlockRead) -> int | None:
        """Read one block; returns the bytes, None where it is damaged or gone."""
        name, groups = read.name, [group for group, _ in read.pages]
        contents = self._store.read(name.key, name.token_ids, groups)
        if contents is None:
            return None
        for (_, block), content in zip(read.pages, contents, strict=True):
            self._pages.write_block(block, content.ljust(self._sizes.pool, b"\0"))
        return sum(map(len, contents))

    def _measure(self, num_bytes: int, seconds: float) -> None:
        if num_bytes and seconds > 0:
            old = self.bytes_per_second
            self.bytes_per_second = old + _NEW_SHARE * (num_bytes / seconds - old)

    def close(self, seconds: float) -> None:
        if self._thread is not None:
            self._loads.put(None)
            self._thread.join(seconds)


def _close(writer: _Writer, reader: _Reader, store: DiskStore) -> None:
    with suppress(KeyboardInterrupt):  # whoever ends it twice does not want to wait
        writer.close(CLOSE_SECONDS)
        reader.close(CLOSE_SECONDS)
    store.close()
