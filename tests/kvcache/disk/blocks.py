"""Blocks of a small model for the tests of the disk store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import shake_128
from itertools import count
from pathlib import Path

from firstword.kvcache.block_pool import block_key, root_key
from firstword.kvcache.disk.record import RecordLayout, StoredBlock, StoreIdentity
from firstword.kvcache.disk.store import DiskStore

BLOCK_SIZE = 4
PAGE_BYTES = (60, 40)
LAYOUT = RecordLayout(PAGE_BYTES, BLOCK_SIZE)
IDENTITY = StoreIdentity(b"a" * 16, "tiny", "float16, native", PAGE_BYTES, BLOCK_SIZE)
OTHER = StoreIdentity(b"b" * 16, "tiny", "float32, native", PAGE_BYTES, BLOCK_SIZE)
ROOT = root_key(IDENTITY.fingerprint.encode())
BOTH = (0, 1)


def pages_of(key: bytes, sizes: tuple[int, ...] = PAGE_BYTES) -> tuple[bytes, ...]:
    """The only content that a block of that key may ever have."""
    return tuple(shake_128(key + bytes([i])).digest(size) for i, size in enumerate(sizes))


def chain(seed: int = 0, parent: bytes = ROOT) -> Iterator[StoredBlock]:
    """Blocks that follow on one another, without end."""
    for i in count():
        token_ids = tuple(seed * 1000 + i * BLOCK_SIZE + j for j in range(BLOCK_SIZE))
        key = block_key(parent, token_ids)
        yield StoredBlock(key, parent, token_ids, pages_of(key))
        parent = key


def blocks(number: int, seed: int = 0) -> list[StoredBlock]:
    """The first blocks of a chain."""
    return [block for _, block in zip(range(number), chain(seed), strict=False)]


def store_of(
    home: Path, identity: StoreIdentity = IDENTITY, max_bytes: int = 1_000_000
) -> DiskStore:
    """A store below a home."""
    return DiskStore(home, identity, max_bytes)


def kept(store: DiskStore, these: list[StoredBlock]) -> list[StoredBlock]:
    """Those of the blocks that a store gives back; each must be as it was written."""
    found = []
    for block in these:
        held = store.holds(block.key, block.token_ids)
        pages = store.read(block.key, block.token_ids, BOTH)
        assert pages is None or (held and tuple(pages) == block.pages)
        if pages is not None:
            found.append(block)
    return found


def files(home: Path, suffix: str) -> list[Path]:
    """Files of all stores below a home, the one used first, first."""
    return sorted(home.glob(f"*/*{suffix}"), key=lambda path: path.stat().st_mtime)


def open_files() -> set[Path]:
    """Paths that this process has open: no sockets, which other tests leave to be collected."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed since
            found.add(link.readlink())
    return {path for path in found if path.is_absolute()}


def disk_bytes(home: Path) -> int:
    """Bytes of all files below a home."""
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
