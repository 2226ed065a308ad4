"""The texts that other stores hold: the first blocks of their chains.

Not here: any page, and whose store it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from firstword.kvcache.disk.segment import ENTRIES_SUFFIX, read_entries


def first_blocks(folders: Iterable[Path]) -> frozenset[bytes]:
    """The packed tokens of every kept block whose parent is not kept.

    Args:
        folders: of the stores.
    """
    found: set[bytes] = set()
    for folder in folders:
        keys: set[bytes] = set()
        tokens: list[tuple[bytes, bytes]] = []  # parent, tokens
        for path in folder.glob(f"*{ENTRIES_SUFFIX}"):
            with suppress(OSError):
                read = read_entries(path)
                if read is None:
                    continue
                layout = read[0].layout
                for position, names in enumerate(layout.keys(read[1])):
                    if names is not None:
                        keys.add(names[0])
                        tokens.append((names[1], layout.tokens(read[1], position)))
        found.update(packed for parent, packed in tokens if parent not in keys)
    return frozenset(found)
