from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.text.tools.json_scanner import MAX_DEPTH, JsonScanner
from tests.text.tools.answers import json_values

pieces = st.lists(
    st.sampled_from(
        [*list('{}[]:," \n\t\\u0a1-+.eE'), "true", "null", "fals", '"a"', "\x01", "NaN"]
    )
).map("".join)


def scan(text: str) -> JsonScanner | None:
    """The scanner after a text; None if it was refused."""
    scanner = JsonScanner()
    return scanner if all(map(scanner.push, text)) else None


@given(st.lists(json_values) | st.dictionaries(st.text(), json_values), st.sampled_from([None, 1]))
def test_all_objects_and_arrays_are_taken(value: object, indent: int | None) -> None:
    scanner = scan(json.dumps(value, indent=indent, ensure_ascii=False))
    assert scanner is not None
    assert scanner.is_closed
    assert scanner.depth == 0


@given(pieces.map("[".__add__))
def test_what_is_closed_is_json(text: str) -> None:
    scanner = scan(text)
    if scanner is not None and scanner.is_closed:
        json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "1",
        '"a"',
        "[1 2]",
        "[01]",
        "[1.]",
        "[-]",
        "[tru1]",
        "[,]",
        "[1,]",
        '{"a"}',
        '{"a":}',
        "{1:2}",
        '{"a":1,}',
        '["\n"]',
        '["\\x"]',
        '["\\u12g4"]',
        "[NaN]",
        "{]",
        "[]]",
        "[+1]",
        "[1e]",
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    assert scan(text) is None


def test_depth_has_a_bound() -> None:
    assert scan("[" * MAX_DEPTH) is not None
    assert scan("[" * (MAX_DEPTH + 1)) is None
