"""A cache folder without any KV, and with all else that the usual one has; not what is kept there.

Models are fetched, weights laid out and vocabularies compiled already: so a first start differs
from a later one in nothing but the KV on the disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firstword.weights.store import default_home

KV_FOLDER = "kv"


@contextmanager
def clean_home(usual: Path | None = None) -> Iterator[Path]:
    """A folder for FIRSTWORD_HOME, on the disk of the usual one; it is removed at the end.

    Args:
        usual: whose files are linked to; None for the one in force.
    """
    usual = default_home() if usual is None else usual
    usual.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-kv-", dir=usual) as name:
        home = Path(name)
        for entry in usual.iterdir():
            if entry.name != KV_FOLDER and not entry.name.startswith("bench-kv-"):
                (home / entry.name).symlink_to(entry)
        yield home
