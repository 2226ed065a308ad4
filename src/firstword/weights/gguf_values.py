"""Values of a GGUF header, each length checked against the file before it is used.

Arrays stay in the file until they are asked for. Not here: what the keys mean (names) and where
the tensors are (gguf). Source: the GGUF specification, ggml/docs/gguf.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from firstword.errors import CheckpointError

MAX_ARRAY_DEPTH = 4
# Strings and arrays inside arrays, in one file: they are stepped over one by one, 0.1 s a million.
MAX_ITEMS = 1 << 22
MAX_SHOWN = 60
_MANY_STRINGS = 1000  # a vocabulary has up to 262,144 of them


class ValueType(IntEnum):
    """The types of a GGUF metadata value."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# Each is a format of struct and a dtype of numpy alike; a bool is read as its byte.
_NUMERIC = {
    ValueType.UINT8: "<B",
    ValueType.INT8: "<b",
    ValueType.UINT16: "<H",
    ValueType.INT16: "<h",
    ValueType.UINT32: "<I",
    ValueType.INT32: "<i",
    ValueType.FLOAT32: "<f",
    ValueType.BOOL: "<B",
    ValueType.UINT64: "<Q",
    ValueType.INT64: "<q",
    ValueType.FLOAT64: "<d",
}
_LENGTH = struct.Struct("<Q")


def shown(value: object) -> str:
    """A value from a file as a message may quote it: escaped, and cut when it is long."""
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        value = value[: MAX_SHOWN - 3] + "..."
    return f"{value!r:.240}"


class Cursor:
    """A position in a mapped file that never leaves it.

    Args:
        path: the file, for messages.
        data: all of its bytes.
        position: offset of the next byte to read.
    """

    def __init__(self, path: Path, data: memoryview, position: int = 0) -> None:
        self.path = path
        self.data = data
        self.position = position
        self._num_items = 0

    @property
    def remaining(self) -> int:
        """Bytes between here and the end of the file."""
        return len(self.data) - self.position

    def error(self, where: str, problem: str) -> CheckpointError:
        """The exception to raise about a field of this file."""
        return CheckpointError(self.path, where, problem)

    def take(self, size: int, where: str) -> int:
        """Step over `size` bytes and return the offset of the first.

        Raises:
            CheckpointError: the file ends before.
        """
        start = self.position
        if size > self.remaining:
            raise self.error(
                where,
                f"needs {size:,} bytes at offset {start:,}, but the file ends at "
                f"{len(self.data):,}: it is truncated or damaged, download it again",
            )
        self.position = start + size
        return start

    def number(self, kind: ValueType, where: str) -> int | float:
        """Read one number of a numeric type."""
        form = _NUMERIC[kind]
        start = self.take(struct.calcsize(form), where)
        value: int | float = struct.unpack_from(form, self.data, start)[0]
        return value

    def u32(self, where: str) -> int:
        """Read an unsigned 32-bit number."""
        return int(self.number(ValueType.UINT32, where))

    def u64(self, where: str) -> int:
        """Read an unsigned 64-bit number."""
        return int(self.number(ValueType.UINT64, where))

    def count(self, where: str, item_bytes: int, limit: int | None = None) -> int:
        """Read how many items follow, each of which takes at least `item_bytes`.

        Raises:
            CheckpointError: so many cannot follow, or they are more than `limit`.
        """
        value = self.u64(where)
        if value * item_bytes > self.remaining:
            raise self.error(
                where,
                f"is {value:,}, but the {self.remaining:,} bytes that follow hold at most "
                f"{self.remaining // item_bytes:,}: the file is truncated or damaged",
            )
        if limit is not None and value > limit:
            raise self.error(where, f"is {value:,}: at most {limit:,} are accepted")
        return value

    def items(self, where: str, item_bytes: int) -> int:
        """Read the length of an array whose items have to be stepped over one by one.

        Raises:
            CheckpointError: the file ends before, or holds too many of them in all.
        """
        length = self.count(where, item_bytes)
        self._num_items += length
        if self._num_items > MAX_ITEMS:
            raise self.error(where, f"is {length:,}: a file may hold {MAX_ITEMS:,} strings in all")
        return length

    def raw_string(self, where: str, limit: int | None = None) -> bytes:
        """Read a string as its bytes."""
        size = self.count(f"{where}, length", 1, limit)
        start = self.take(size, where)
        return bytes(self.data[start : start + size])

    def name(self, where: str, limit: int) -> str:
        """Read a string that has to be UTF-8 and not empty: a key or the name of a tensor."""
        raw = self.raw_string(where, limit)
        if not raw:
            raise self.error(where, "is empty: expected at least one character")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.error(where, f"is not UTF-8 at byte {error.start}: {raw[:40]!r}") from None

    def value_type(self, where: str) -> ValueType:
        """Read the type of a value."""
        number = self.u32(where)
        if number > max(ValueType):
            raise self.error(where, f"is {number}: expected one of 0 to {max(ValueType):d}")
        return ValueType(number)


class NumericArray(Sequence[int | float | bool]):
    """An array of numbers or truth values in the file."""

    def __init__(self, values: NDArray[np.generic]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<array of {len(self):,} numbers>"

    @overload
    def __getitem__(self, index: int) -> int | float | bool: ...
    @overload
    def __getitem__(self, index: slice) -> list[int | float | bool]: ...
    def __getitem__(self, index: int | slice) -> int | float | bool | list[int | float | bool]:
        picked: int | float | bool | list[int | float | bool] = self._values[index].tolist()
        return picked

    def __iter__(self) -> Iterator[int | float | bool]:
        return iter(self.to_list())

    def to_list(self) -> list[int | float | bool]:
        """All values as Python numbers."""
        values: list[int | float | bool] = self._values.tolist()
        return values

    def to_numpy(self) -> NDArray[np.generic]:
        """All values, [len]: a read-only view of the file."""
        return self._values


class StringArray(Sequence[str]):
    """An array of strings in the file. Bytes that are not UTF-8 become U+FFFD.

    Args:
        data: the file.
        start: offset of the first string's length.
        length: number of strings; all of them are known to lie within the file.
    """

    def __init__(self, data: memoryview, start: int, length: int) -> None:
        self._data = data
        self._start = start
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<array of {len(self):,} strings>"

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._decode(int(offset)) for offset in self._offsets[index]]
        return self._decode(int(self._offsets[index]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_list())

    def to_list(self) -> list[str]:
        """All strings, decoded afresh at every call."""
        data, unpack, position = self._data, _LENGTH.unpack_from, self._start
        strings = []
        for _ in range(self._length):
            start = position + 8
            position = start + unpack(data, position)[0]
            strings.append(str(data[start:position], "utf-8", "replace"))
        return strings

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        offsets = np.empty(self._length, dtype=np.int64)
        position = self._start
        for i in range(self._length):
            offsets[i] = position
            position += 8 + _LENGTH.unpack_from(self._data, position)[0]
        return offsets

    def _decode(self, offset: int) -> str:
        size = _LENGTH.unpack_from(self._data, offset)[0]
        return str(self._data[offset + 8 : offset + 8 + size], "utf-8", "replace")


class NestedArray(Sequence["MetadataArray"]):
    """An array of arrays in the file, read again at every use: no model needs one."""

    def __init__(self, cursor: Cursor, length: int, depth: int) -> None:
        self._path, self._data, self._start = cursor.path, cursor.data, cursor.position
        self._length = length
        self._depth = depth

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<array of {len(self):,} arrays>"

    @overload
    def __getitem__(self, index: int) -> MetadataArray: ...
    @overload
    def __getitem__(self, index: slice) -> list[MetadataArray]: ...
    def __getitem__(self, index: int | slice) -> MetadataArray | list[MetadataArray]:
        return list(self)[index]

    def __iter__(self) -> Iterator[MetadataArray]:
        cursor = Cursor(self._path, self._data, self._start)
        for _ in range(self._length):
            yield read_array(cursor, "nested array", self._depth + 1)

    def to_list(self) -> list[object]:
        """All arrays as lists."""
        return [array.to_list() for array in self]


MetadataArray: TypeAlias = NumericArray | StringArray | NestedArray
MetadataValue: TypeAlias = bool | int | float | str | MetadataArray


def read_value(cursor: Cursor, where: str) -> MetadataValue:
    """Read the type of a metadata value and the value."""
    kind = cursor.value_type(f"{where}, type")
    if kind is ValueType.STRING:
        return cursor.raw_string(where).decode("utf-8", "replace")
    if kind is ValueType.ARRAY:
        return read_array(cursor, where)
    number = cursor.number(kind, where)
    if kind is not ValueType.BOOL:
        return number
    if number > 1:
        raise cursor.error(where, f"is the byte {number}: a truth value is 0 or 1")
    return bool(number)


def read_array(cursor: Cursor, where: str, depth: int = 1) -> MetadataArray:
    """Read an array's type and length and step over its items, checking every length."""
    if depth > MAX_ARRAY_DEPTH:
        raise cursor.error(where, f"nests arrays more than {MAX_ARRAY_DEPTH} deep")
    kind = cursor.value_type(f"{where}, item type")
    if kind is ValueType.STRING:
        return _read_strings(cursor, where)
    if kind is ValueType.ARRAY:
        length = cursor.items(f"{where}, length", 12)
        array = NestedArray(cursor, length, depth)
        for i in range(length):
            read_array(cursor, f"{where}, item {i}", depth + 1)
        return array
    return _read_numbers(cursor, where, kind)


def _read_numbers(cursor: Cursor, where: str, kind: ValueType) -> NumericArray:
    dtype = np.dtype(_NUMERIC[kind])
    length = cursor.count(f"{where}, length", dtype.itemsize)
    start = cursor.take(length * dtype.itemsize, where)
    values: NDArray[np.generic] = np.frombuffer(cursor.data, dtype, length, start)
    if kind is ValueType.BOOL:
        truth = values.view(np.uint8)
        if length and truth.max() > 1:
            raise cursor.error(where, f"holds the byte {truth.max()}: a truth value is 0 or 1")
        values = values.view(np.bool_)
    return NumericArray(values)


def _read_strings(cursor: Cursor, where: str) -> StringArray:
    """Step over the strings; where one leaves the file, the loop finds out which."""
    length = cursor.items(f"{where}, length", 8)
    array = StringArray(cursor.data, cursor.position, length)
    end = _end_of_strings(cursor, length)
    if end is not None:
        cursor.take(end - cursor.position, where)
        return array
    data, unpack = cursor.data, _LENGTH.unpack_from
    position, last = cursor.position, len(data) - 8
    for i in range(length):
        if position > last:
            raise cursor.error(
                f"{where}, item {i} of {length:,}",
                f"starts at offset {position:,}, but the file ends at {len(data):,}: it is "
                "truncated or damaged, download it again",
            )
        position += 8 + unpack(data, position)[0]
    # The last string may still end outside.
    cursor.take(position - cursor.position, where)
    return array


def _end_of_strings(cursor: Cursor, length: int) -> int | None:
    """Where the strings end; None if one does not lie within the file, or without kernels."""
    if length < _MANY_STRINGS:
        return None
    try:
        from firstword.weights.native import end_of_strings
    except ImportError:
        return None
    return end_of_strings(cursor.data, cursor.position, length)
