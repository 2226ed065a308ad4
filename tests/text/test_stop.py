from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.errors import ConfigError
from firstword.text.stop import StopStrings


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The definition: read the text character by character until it ends with a stop string."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


def split(text: str, lengths: list[int]) -> list[str]:
    parts = []
    for length in lengths:
        parts.append(text[:length])
        text = text[length:]
    return [*parts, text]


letters = st.sampled_from("ab\n👧")


@given(
    st.text(letters, max_size=40),
    st.lists(st.text(letters, min_size=1, max_size=5), max_size=4),
    st.lists(st.integers(0, 6)),
)
def test_p16_any_chunking_gives_the_same_text(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    stream = StopStrings(stops)
    emitted = "".join([*(stream.push(part) for part in split(text, sizes)), stream.flush()])
    assert (emitted, stream.matched) == cut(text, stops)


@given(
    st.text(letters, max_size=40), st.lists(st.text(letters, min_size=1, max_size=5), max_size=4)
)
def test_p16_holds_back_only_what_may_become_a_stop_string(text: str, stops: list[str]) -> None:
    stream = StopStrings(stops)
    emitted = stream.push(text)
    if stream.matched is None:
        held = text[len(emitted) :]
        ends = [text[at:] for at in range(len(text))]
        begins = [end for end in ends if any(stop.startswith(end) for stop in stops)]
        assert held == max(begins, key=len, default="")


def test_a_stop_string_over_several_pieces() -> None:
    stream = StopStrings(["END", "</answer>"])
    assert [stream.push(part) for part in ("so E", "N", "TER </an", "swer", "> more")] == [
        "so ",
        "",
        "ENTER ",
        "",
        "",
    ]
    assert stream.matched == "</answer>"
    assert stream.push("x") == ""
    assert stream.flush() == ""


def test_the_first_complete_wins_and_then_the_longest() -> None:
    assert cut("xabcd", ["abcd", "bc"]) == ("xa", "bc")
    for stops in (["bc", "abc"], ["abc", "bc"]):
        stream = StopStrings(stops)
        assert (stream.push("xabc"), stream.matched) == ("x", "abc")


def test_what_is_held_comes_out_at_the_end() -> None:
    stream = StopStrings(["\n\n"])
    assert stream.push("a\n") == "a"
    assert stream.flush() == "\n"
    assert stream.matched is None
    assert StopStrings([]).push("a\n") == "a\n"


@pytest.mark.parametrize("stop", ["", "a\ud83d"])
def test_impossible_stop_strings_are_refused(stop: str) -> None:
    with pytest.raises(ConfigError, match="stop string 1"):
        StopStrings(["ok", stop])
