"""Where each field of a sound GGUF header lies: a second reader, for mutations to aim with."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from firstword.weights.gguf_values import ValueType

_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@dataclass(frozen=True)
class Field:
    """Bytes [start, start + size) of the file and what they are."""

    kind: str
    start: int
    size: int


@dataclass
class Fields:
    """The fields of a file in order, found by walking it."""

    content: bytes
    found: list[Field] = field(default_factory=list)
    position: int = 0

    @classmethod
    def of(cls, content: bytes) -> list[Field]:
        walk = cls(content)
        walk._skip("magic", 4)
        walk._number("version", 4)
        num_tensors = walk._number("count", 8)
        num_keys = walk._number("count", 8)
        for _ in range(num_keys):
            walk._string("key length", "key")
            walk._value(walk._number("value type", 4))
        for _ in range(num_tensors):
            walk._tensor()
        walk._skip("data", len(content) - walk.position)
        return walk.found

    def _skip(self, kind: str, size: int) -> int:
        start = self.position
        self.found.append(Field(kind, start, size))
        self.position += size
        return start

    def _number(self, kind: str, size: int) -> int:
        start = self._skip(kind, size)
        return int.from_bytes(self.content[start : start + size], "little")

    def _string(self, length_kind: str, kind: str) -> bytes:
        size = self._number(length_kind, 8)
        start = self._skip(kind, size)
        return self.content[start : start + size]

    def _value(self, kind: int) -> None:
        if kind == ValueType.STRING:
            self._string("string length", "string")
        elif kind == ValueType.ARRAY:
            item = self._number("item type", 4)
            length = self._number("array length", 8)
            if item == ValueType.STRING:
                for _ in range(length):
                    self._string("string length", "string")
            else:
                self._skip("numbers", length * _WIDTHS[item])
        else:
            self._skip("number", _WIDTHS[kind])

    def _tensor(self) -> None:
        self._string("name length", "name")
        for _ in range(self._number("number of dimensions", 4)):
            self._number("dimension", 8)
        self._number("tensor type", 4)
        self._number("offset", 8)


def number_bytes(number: int, size: int) -> bytes:
    """The low `size` bytes of a number, little-endian."""
    return struct.pack("<Q", number % 2**64)[:size]
