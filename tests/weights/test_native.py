from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.weights.native import end_of_strings


@given(st.lists(st.binary(max_size=20)), st.integers(0, 9))
def test_strings_are_stepped_over(strings: list[bytes], start: int) -> None:
    body = b"".join(struct.pack("<Q", len(s)) + s for s in strings)
    data = bytes(start) + body + b"rest"
    assert end_of_strings(memoryview(data), start, len(strings)) == start + len(body)


@pytest.mark.parametrize("length", [3, 2**32, 2**63, 2**64 - 1])
def test_a_string_that_leaves_the_file_is_found(length: int) -> None:
    data = struct.pack("<Q", length) + b"ab"
    assert end_of_strings(memoryview(data), 0, 1) is None


def test_lengths_that_are_not_there_are_found() -> None:
    assert end_of_strings(memoryview(bytes(20)), 0, 3) is None
    assert end_of_strings(memoryview(bytes(20)), 99, 1) is None
    assert end_of_strings(memoryview(bytes(20)), 99, 0) == 99
