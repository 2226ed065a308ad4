from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from firstword.text.special_tokens import TokenMatcher


def test_leftmost_then_longest() -> None:
    matcher = TokenMatcher({"<a>": 1, "<a><b>": 2, "b": 3, " ": 4, "  ": 5})
    assert list(matcher.find("x<a><b>b   <a>")) == [
        (1, 7, 2),
        (7, 8, 3),
        (8, 10, 5),
        (10, 11, 4),
        (11, 14, 1),
    ]


def test_an_empty_table_and_an_empty_string_match_nothing() -> None:
    assert list(TokenMatcher({}).find("abc")) == []
    assert list(TokenMatcher({"": 1}).find("abc")) == []
    assert len(TokenMatcher({"": 1, "a": 2})) == 1


def test_first_characters_with_a_meaning_in_regular_expressions() -> None:
    strings = {first + "x": index for index, first in enumerate("]^-\\[.*")}
    found = [token_id for _, _, token_id in TokenMatcher(strings).find("".join(strings))]
    assert found == list(range(7))


@given(st.sets(st.text("ab<", min_size=1, max_size=4), max_size=6), st.text("ab<", max_size=30))
def test_equal_to_trying_every_string_at_every_place(strings: set[str], text: str) -> None:
    ids = {string: index for index, string in enumerate(sorted(strings))}
    expected = []
    at = 0
    while at < len(text):
        fits = [string for string in strings if text.startswith(string, at)]
        if fits:
            longest = max(fits, key=len)
            expected.append((at, at + len(longest), ids[longest]))
        at += len(max(fits, key=len)) if fits else 1
    assert list(TokenMatcher(ids).find(text)) == expected
