"""How much of the disk KV blocks may take where a program does not say.

Not here: how the limit is kept (home).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from firstword.config import parse_size

MAX_DEFAULT_BYTES = 10 * 10**9
FREE_SHARE = 0.1
VARIABLE = "FIRSTWORD_KV_DISK"


def kv_disk_bytes(given: int | None, home: Path, environ: Mapping[str, str] = os.environ) -> int:
    """The limit in force.

    Args:
        given: what the program said; None where it did not.
        home: the folder of all models' blocks; it need not exist.
        environ: where FIRSTWORD_KV_DISK may hold a size, as `config.parse_size` reads it.

    Returns:
        Bytes; 0 keeps nothing on the disk.

    Raises:
        ConfigError: FIRSTWORD_KV_DISK is no size.
    """
    if given is not None:
        return given
    if environ.get(VARIABLE):
        return parse_size(environ[VARIABLE], VARIABLE)
    return default_disk_bytes(home)


def default_disk_bytes(home: Path) -> int:
    """The smaller of 10 GB and a tenth of the disk that is free or taken by blocks already.

    Args:
        home: the folder of all models' blocks; it need not exist.
    """
    try:
        folder = next(folder for folder in (home, *home.parents) if folder.is_dir())
        free = shutil.disk_usage(folder).free
    except OSError:
        return 0
    return min(MAX_DEFAULT_BYTES, int(FREE_SHARE * (free + _held_bytes(home))))


def _held_bytes(home: Path) -> int:
    total = 0
    for path in home.glob("*/*"):
        with suppress(OSError):  # removed since
            total += path.stat().st_size
    return total
