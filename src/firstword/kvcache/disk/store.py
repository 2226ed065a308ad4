"""The blocks of one model that are kept on the disk, by all its processes together.

Whatever goes wrong is a block that is not there, never an error: a full disk, a file that was cut,
changed or removed, a folder that cannot be written to. Not here: what is written and loaded when.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from firstword.kvcache.disk.block_writer import BlockWriter
from firstword.kvcache.disk.contents import StoreContents
from firstword.kvcache.disk.elsewhere import first_blocks
from firstword.kvcache.disk.entry_index import Found
from firstword.kvcache.disk.home import KVHome
from firstword.kvcache.disk.page_reader import PageReader
from firstword.kvcache.disk.record import (
    RecordLayout,
    StoredBlock,
    StoreIdentity,
    pack_tokens,
    page_digest,
)
from firstword.kvcache.disk.segment import ENTRIES_SUFFIX, strike
from firstword.kvcache.tier import Departure

_REFRESH_SECONDS = 1.0
_TOUCH_SECONDS = 60.0


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

    Any thread may call anything; those that write wait for one another, and so do those that read.
    Nothing here raises OSError.

    Args:
        home: the folder of all models' blocks; it need not exist yet.
        identity: whose blocks these are.
        max_bytes: what the blocks of all models may take, above 0; what was used least recently
            gives way.

    Attributes:
        notice: why nothing could be written when the store was opened, for the user; None if all
            was well. It is tried again every minute.
    """

    def __init__(self, home: Path, identity: StoreIdentity, max_bytes: int) -> None:
        self.notice: str | None = None
        self._home = KVHome(home)
        self._folder = home / identity.fingerprint
        self._max_bytes = max_bytes
        self._layout = RecordLayout(identity.page_bytes, identity.block_size)
        self._contents = StoreContents(self._folder, self._layout)
        self._writer = BlockWriter(self._home, identity, self._contents, max_bytes)
        self._reader = PageReader(self._folder, self._layout)
        self._elsewhere: frozenset[bytes] | None = None
        self._refreshed_at = 0.0
        self._touched: dict[str, float] = {}
        self._is_private = False
        self._open()

    @property
    def accepts_blocks(self) -> bool:
        """Whether there is any use in an `append` now."""
        return self._writer.is_ready

    @property
    def usage(self) -> Usage:
        """What is kept now."""
        count = len(self._contents)
        each = self._layout.record_bytes + self._layout.entry_bytes
        return Usage(count, count * each, self._max_bytes, self._writer.num_failed)

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Whether the block of that key, with these tokens, is kept."""
        return self._contents.holds(key, token_ids)

    def children(self, parent: bytes, limit: int) -> list[tuple[int, ...]]:
        """Tokens of the kept blocks that follow on the block `parent`: the newest `limit`."""
        return self._contents.children(parent, limit)

    def departure(self, key: bytes) -> Departure | None:
        """Why a block that was kept once is not any more; None where nothing is known of it."""
        return self._contents.departure(key)

    def known_elsewhere(self, token_ids: tuple[int, ...]) -> bool:
        """Whether a text beginning with this block is kept for another model or other settings.

        Text under a salt is not told of. The first call reads the entries of all other stores; what
        they take in later is not seen.
        """
        if self._elsewhere is None:
            others = [folder for folder in self._home.folders() if folder != self._folder]
            self._elsewhere = first_blocks(others)
        return pack_tokens(token_ids) in self._elsewhere

    def refresh(self) -> None:
        """Take in what other processes have written or removed since."""
        if self._is_private:
            with suppress(OSError):
                self._contents.refresh()

    def touch(self, key: bytes) -> None:
        """Say that a block was used, wherever it was read from: it stays longer."""
        place = self._contents.place(key)
        if place is not None:
            self._touch(place.segment)

    def append(self, block: StoredBlock) -> bool:
        """Keep a block.

        Returns:
            Whether it is kept now: not where the disk is full, the cap leaves no room or the
            folder cannot be written to. After a failure nothing is written for a minute.
        """
        assert self._layout.fits(block), "a block of another model or other settings"
        now = time.monotonic()
        if now - self._refreshed_at > _REFRESH_SECONDS:  # others may have written the same
            self._refreshed_at = now
            self.refresh()
        return self.holds(block.key, block.token_ids) or self._writer.write(block)

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
        found = self._contents.find(key, token_ids)
        if found is None:
            return None
        pages = self._verified_pages(found, groups)
        if pages is None:
            self._contents.forget(key)
        else:
            self._touch(found.place.segment)
        return pages

    def close(self) -> None:
        """Give up the segment that is written to, for other processes to go on with."""
        self._writer.close()
        self._reader.close()

    def _open(self) -> None:
        if not self._writer.fits_cap:
            self.notice = _not_kept(
                f"a block of {self._layout.block_size} tokens takes "
                f"{self._layout.record_bytes} bytes and {self._max_bytes} are allowed"
            )
        try:
            self._home.prepare()
            self._is_private = True
            with self._home.alone():
                self._home.make_room(self._max_bytes)
        except BlockingIOError:
            pass  # there will be room when something is written
        except OSError as error:
            self.notice = _not_kept(str(error))
        self.refresh()

    def _verified_pages(self, found: Found, groups: Sequence[int]) -> list[bytes] | None:
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
