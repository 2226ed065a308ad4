"""GGUF headers byte by byte, right or wrong as a test needs them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from firstword.quant import GGMLType
from firstword.weights.gguf_values import ValueType


def string(text: str | bytes, length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def value(kind: int, payload: bytes) -> bytes:
    return struct.pack("<I", kind) + payload


def u32(number: int) -> bytes:
    return value(ValueType.UINT32, struct.pack("<I", number))


def text_value(text: str | bytes) -> bytes:
    return value(ValueType.STRING, string(text))


def array(item_kind: int, length: int, payload: bytes) -> bytes:
    return value(ValueType.ARRAY, struct.pack("<IQ", item_kind, length) + payload)


@dataclass
class Info:
    """One tensor of the header; dims in the order of the file, row length first."""

    name: str | bytes = "t"
    dims: tuple[int, ...] = (8,)
    type: int = GGMLType.F32
    offset: int = 0
    num_dims: int | None = None

    def pack(self) -> bytes:
        count = len(self.dims) if self.num_dims is None else self.num_dims
        dims = struct.pack(f"<{len(self.dims)}Q", *self.dims)
        return string(self.name) + struct.pack("<I", count) + dims + self.tail()

    def tail(self) -> bytes:
        return struct.pack("<IQ", self.type, self.offset)


@dataclass
class RawGGUF:
    """A whole file; counts are right unless they are given."""

    keys: list[tuple[str | bytes, bytes]] = field(default_factory=list)
    infos: list[Info] = field(default_factory=list)
    data: bytes = b""
    version: int = 3
    num_tensors: int | None = None
    num_keys: int | None = None
    alignment: int = 32

    def pack(self) -> bytes:
        num_tensors = len(self.infos) if self.num_tensors is None else self.num_tensors
        num_keys = len(self.keys) if self.num_keys is None else self.num_keys
        header = b"GGUF" + struct.pack("<IQQ", self.version, num_tensors, num_keys)
        for key, packed in self.keys:
            header += string(key) + packed
        for info in self.infos:
            header += info.pack()
        return header + bytes(-len(header) % self.alignment) + self.data

    def write(self, folder: Path, name: str = "model.gguf") -> Path:
        path = folder / name
        path.write_bytes(self.pack())
        return path
