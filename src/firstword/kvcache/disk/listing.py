"""What the stores of all models hold, for people: no block is read.

Not here: how it is shown (cli.cache).
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from firstword.kvcache.disk.home import ABOUT, KVHome
from firstword.kvcache.disk.segment import ENTRIES_SUFFIX, read_entries


@dataclass(frozen=True, slots=True)
class KeptTexts:
    """What one store holds.

    Args:
        name: of the model.
        settings: what else its blocks depend on.
        num_tokens: tokens whose keys and values are there.
        num_bytes: what they take on the disk.
        folder: where.
    """

    name: str
    settings: str
    num_tokens: int
    num_bytes: int
    folder: Path


def list_stores(home: Path) -> list[KeptTexts]:
    """What is kept, the largest store first.

    Args:
        home: the folder of all stores; it need not exist.
    """
    stores = [_listed(folder) for folder in KVHome(home).folders()]
    kept = [store for store in stores if store.num_bytes]
    return sorted(kept, key=lambda store: (-store.num_bytes, store.name))


def _listed(folder: Path) -> KeptTexts:
    num_tokens = num_bytes = 0
    for path in folder.glob("*"):
        with suppress(OSError):  # removed since
            num_bytes += path.lstat().st_size
            if path.suffix == ENTRIES_SUFFIX:
                read = read_entries(path)
                if read is not None:
                    header, entries = read
                    num_tokens += len(entries) // header.entry_bytes * header.block_size
    name, settings = _about(folder)
    return KeptTexts(name, settings, num_tokens, num_bytes, folder)


def _about(folder: Path) -> tuple[str, str]:
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        return str(about["name"]), str(about["settings"])
    except (OSError, ValueError, KeyError, TypeError):
        return "an unknown model", "unknown settings"
