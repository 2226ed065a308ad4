"""The metadata of a GGUF file, read the short way: for sound files only."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9


class _Cursor:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 16

    def numbers(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from("<" + layout, self._data, self._at)
        self._at += struct.calcsize("<" + layout)
        return values

    def string(self) -> str:
        (length,) = self.numbers("Q")
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def value(self, kind: int) -> object:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.numbers(_SCALARS[kind])[0]
        element, count = self.numbers("IQ")
        if element == _STRING:
            return [self.string() for _ in range(count)]
        return list(self.numbers(f"{count}{_SCALARS[element]}"))


def read_metadata(path: Path) -> dict[str, object]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = _Cursor(data)
        (count,) = cursor.numbers("Q")
        metadata = {}
        for _ in range(count):
            key = cursor.string()
            (kind,) = cursor.numbers("I")
            metadata[key] = cursor.value(kind)
        return metadata
