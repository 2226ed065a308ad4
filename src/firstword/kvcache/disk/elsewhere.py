"""The texts that other stores hold: the first blocks of their chains.

Not here: any page, and whose store it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from firstword.kvcache.block_pool import root_key
from firstword.kvcache.disk.segment import ENTRIES_SUFFIX, read_entries


def first_blocks(folders: Iterable[Path]) -> frozenset[bytes]:
    """The packed tokens of every kept block that begins a text.

    Text under a salt is left out: nobody else is to learn that it was ever asked.

    Args:
        folders: of the stores, each named by its identity's fingerprint.
    """
    return frozenset(block for folder in folders for block in _first_blocks(folder))


def _first_blocks(folder: Path) -> Iterator[bytes]:
    root = root_key(folder.name.encode())
    for path in folder.glob(f"*{ENTRIES_SUFFIX}"):
        with suppress(OSError):
            read = read_entries(path)
            if read is None:
                continue
            layout = read[0].layout
            for position, names in enumerate(layout.keys(read[1])):
                if names is not None and names[1] == root:
                    yield layout.tokens(read[1], position)
