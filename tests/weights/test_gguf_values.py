import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from firstword.errors import CheckpointError
from firstword.weights.gguf_values import (
    Cursor,
    MetadataValue,
    NestedArray,
    NumericArray,
    StringArray,
    ValueType,
    read_value,
    shown,
)
from tests.weights.raw_gguf import array, string, value

FILE = Path("model.gguf")


def read(packed: bytes, end: bytes = b"") -> MetadataValue:
    cursor = Cursor(FILE, memoryview(packed + end))
    result = read_value(cursor, "metadata 'k'")
    assert cursor.position == len(packed)
    return result


def refuse(packed: bytes) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read(packed)
    assert caught.value.path == "model.gguf"
    assert caught.value.where.startswith("metadata 'k'")
    return caught.value


@pytest.mark.parametrize(
    ("kind", "form", "number"),
    [
        (ValueType.UINT8, "<B", 255),
        (ValueType.INT8, "<b", -128),
        (ValueType.UINT16, "<H", 65535),
        (ValueType.INT16, "<h", -32768),
        (ValueType.UINT32, "<I", 2**32 - 1),
        (ValueType.INT32, "<i", -(2**31)),
        (ValueType.FLOAT32, "<f", 0.5),
        (ValueType.UINT64, "<Q", 2**64 - 1),
        (ValueType.INT64, "<q", -(2**63)),
        (ValueType.FLOAT64, "<d", 1e300),
    ],
)
def test_numbers_alone_and_in_arrays(kind: ValueType, form: str, number: float) -> None:
    payload = struct.pack(form, number)
    assert read(value(kind, payload)) == number
    numbers = read(array(kind, 2, payload + bytes(len(payload))), end=b"next")
    assert isinstance(numbers, NumericArray)
    assert numbers.to_list() == list(numbers) == [number, 0]
    assert (numbers[0], numbers[-1], numbers[1:], len(numbers)) == (number, 0, [0], 2)
    assert not numbers.to_numpy().flags.writeable


def test_truth_values_are_the_bytes_0_and_1() -> None:
    assert read(value(ValueType.BOOL, b"\1")) is True
    assert read(value(ValueType.BOOL, b"\0")) is False
    truths = read(array(ValueType.BOOL, 2, b"\1\0"))
    assert isinstance(truths, NumericArray)
    assert truths.to_list() == [True, False] and truths[0] is True
    assert "byte 2" in refuse(value(ValueType.BOOL, b"\2")).problem
    assert "byte 7" in refuse(array(ValueType.BOOL, 3, b"\1\7\0")).problem


def test_strings_alone_and_in_arrays() -> None:
    assert read(value(ValueType.STRING, string("héllo"))) == "héllo"
    strings = read(array(ValueType.STRING, 3, string("a") + string("") + string("日本")), end=b"x")
    assert isinstance(strings, StringArray)
    assert strings.to_list() == list(strings) == ["a", "", "日本"]
    assert (strings[2], strings[-3], strings[1:], len(strings)) == ("日本", "a", ["", "日本"], 3)
    with pytest.raises(IndexError):
        strings[3]


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    assert read(value(ValueType.STRING, string(b"a\xff"))) == "a\ufffd"
    strings = read(array(ValueType.STRING, 1, string(b"\xe2\x96")))
    assert isinstance(strings, Sequence)
    assert strings[0] == "\ufffd"


def test_nested_arrays() -> None:
    inner = struct.pack("<IQ", ValueType.UINT8, 2) + b"\1\2"
    strings = struct.pack("<IQ", ValueType.STRING, 1) + string("s")
    nested = read(array(ValueType.ARRAY, 2, inner + strings), end=b"x")
    assert isinstance(nested, NestedArray)
    assert nested.to_list() == [[1, 2], ["s"]]
    assert len(nested) == 2
    assert isinstance(nested[1], StringArray)
    assert repr(nested) == "<array of 2 arrays>"


def test_arrays_nested_too_deep_are_refused() -> None:
    packed = struct.pack("<IQ", ValueType.UINT8, 0)
    for _ in range(4):
        packed = struct.pack("<IQ", ValueType.ARRAY, 1) + packed
    assert "4 deep" in refuse(struct.pack("<I", ValueType.ARRAY) + packed).problem
    assert read(struct.pack("<I", ValueType.ARRAY) + packed[12:]) is not None


@pytest.mark.parametrize("kind", [13, 99, 2**32 - 1])
def test_unknown_types_are_refused(kind: int) -> None:
    assert f"is {kind}" in refuse(value(kind, bytes(8))).problem
    assert f"is {kind}" in refuse(array(kind, 1, bytes(8))).problem


@pytest.mark.parametrize("length", [3, 2**31, 2**32, 2**61, 2**63, 2**64 - 1])
@pytest.mark.parametrize("kind", list(ValueType), ids=lambda k: k.name)
def test_lengths_beyond_the_file_are_refused(kind: ValueType, length: int) -> None:
    error = refuse(array(kind, length, b""))
    assert f"{length:,}" in error.problem
    assert error.where == "metadata 'k', length"


@pytest.mark.parametrize("length", [5, 2**32, 2**63, 2**64 - 1])
def test_strings_that_leave_the_file_are_refused(length: int) -> None:
    assert f"{length:,}" in refuse(value(ValueType.STRING, string("abc", length))).problem
    first = string("ok")
    refuse(array(ValueType.STRING, 2, first + string("abc", length)))
    middle = refuse(array(ValueType.STRING, 3, first + string("abc", length) + string("z")))
    assert "item 2 of 3" in middle.where


def test_strings_are_limited_over_the_whole_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstword.weights.gguf_values.MAX_ITEMS", 3)
    two = array(ValueType.STRING, 2, string("a") + string("b"))
    cursor = Cursor(FILE, memoryview(two + two))
    read_value(cursor, "metadata 'first'")
    with pytest.raises(CheckpointError, match=r"'second', length: is 2: a file may hold 3"):
        read_value(cursor, "metadata 'second'")


def test_every_truncation_is_refused() -> None:
    packed = array(ValueType.STRING, 2, string("ab") + string("cd"))
    for size in range(len(packed)):
        refuse(packed[:size])


def test_messages_quote_long_values_short() -> None:
    assert shown("a'b\x1b") == '"a\'b\\x1b"'
    assert len(shown("x" * 10_000)) < 70
    numbers = NumericArray(np.zeros(70_000))
    assert shown(numbers) == "<array of 70,000 numbers>"
    assert shown(StringArray(memoryview(b""), 0, 0)) == "<array of 0 strings>"
