"""Blocks whose content follows from their key, so that any store of them can be checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from random import Random

from benchmarks.kv_crash.damage import folder_bytes
from firstword.kvcache.block_pool import block_key
from firstword.kvcache.disk.record import StoredBlock, StoreIdentity
from firstword.kvcache.disk.store import DiskStore

PAGE_BYTES = (24_000, 8_000)
BLOCK_SIZE = 32
IDENTITY = StoreIdentity(b"k" * 16, "check", "float16, none", PAGE_BYTES, BLOCK_SIZE)
MAX_BYTES = 8 * 10**6
NUM_TEXTS, TEXT_BLOCKS = 6, 60
_ROOT = block_key(b"check", ())


def text(seed: int) -> Iterator[StoredBlock]:
    """The blocks of one text, without end."""
    parent = _ROOT
    for index in count():
        numbers = Random(seed * 1_000_003 + index)
        token_ids = tuple(numbers.randrange(50_000) for _ in range(BLOCK_SIZE))
        key = block_key(parent, token_ids)
        yield StoredBlock(key, parent, token_ids, pages_of(key))
        parent = key


def pages_of(key: bytes) -> tuple[bytes, ...]:
    """The content that the block of a key has."""
    numbers = Random(key)
    return tuple(numbers.randbytes(size) for size in PAGE_BYTES)


def texts() -> list[list[StoredBlock]]:
    """All texts that the checks write."""
    return [
        [block for _, block in zip(range(TEXT_BLOCKS), text(seed), strict=False)]
        for seed in range(NUM_TEXTS)
    ]


def open_store(home: Path, max_bytes: int = MAX_BYTES) -> DiskStore:
    """The store that the checks write to."""
    return DiskStore(home, IDENTITY, max_bytes)


@dataclass(frozen=True)
class Found:
    """What a store gave back.

    Args:
        num_kept: blocks that were as they had been written.
        num_wrong: blocks that were not.
        num_bytes: of all its files.
    """

    num_kept: int
    num_wrong: int
    num_bytes: int


def examine(home: Path, blocks: Sequence[StoredBlock], max_bytes: int = MAX_BYTES) -> Found:
    """Open a store as the next process would, and read all that it holds."""
    num_bytes = folder_bytes(home)
    store = open_store(home, max_bytes)
    kept = wrong = 0
    for block in blocks:
        pages = store.read(block.key, block.token_ids, range(len(PAGE_BYTES)))
        kept += pages is not None
        wrong += pages is not None and tuple(pages) != block.pages
    store.close()
    return Found(kept, wrong, num_bytes)
