"""Names of blocks that were kept once, and why they are not any more: one small file per store.

It only serves to explain a miss: entries may be lost, and none is verified. Not here: who removes
blocks (home), and for what is remembered of the pool (misses).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from firstword.kvcache.tier import Departure

FILE_NAME = "departed"
MAX_ENTRIES = 16384
"""Older ones are given up when there are twice as many; 17 bytes each."""

_ENTRY = struct.Struct("<16sB")
_CODES: tuple[Departure, ...] = ("evicted", "expired")


def record_departures(folder: Path, keys: Iterable[bytes], cause: Departure) -> None:
    """Remember that blocks have gone. The home is locked.

    Raises:
        OSError: the file cannot be written to.
    """
    code = _CODES.index(cause)
    data = b"".join(_ENTRY.pack(key, code) for key in keys)
    path = folder / FILE_NAME
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size // _ENTRY.size * _ENTRY.size
        if size + len(data) > 2 * MAX_ENTRIES * _ENTRY.size:
            data = os.pread(fd, size, 0) + data
            data = data[-MAX_ENTRIES * _ENTRY.size :]
            os.ftruncate(fd, 0)
            size = 0
        os.pwrite(fd, data, size)
    finally:
        os.close(fd)


def read_departures(folder: Path) -> dict[bytes, Departure]:
    """What has gone, and why; empty where nothing is known."""
    try:
        data = (folder / FILE_NAME).read_bytes()
    except OSError:
        return {}
    whole = data[: len(data) // _ENTRY.size * _ENTRY.size]
    return {key: _CODES[code] for key, code in _ENTRY.iter_unpack(whole) if code < len(_CODES)}
