from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.errors import ChatTemplateError
from firstword.text.chat_markers import (
    Markers,
    Ranges,
    find_typed,
    map_strings,
    search_typed,
    strings_in,
)

words = st.text("ab<> \n\U000f0000\U000f000b", max_size=6)


@given(st.lists(words, max_size=15), st.lists(words, min_size=16, max_size=16))
def test_marked_texts_come_back_in_their_places(marked: list[str], around: list[str]) -> None:
    markers = Markers([*marked, *around])
    rendered, expected = around[0], around[0]
    places, moved = [], []
    for text, after in zip(marked, around[1:], strict=False):
        marker = markers.mark(text)
        places.append((len(rendered), len(rendered + marker)))
        moved.append((len(expected), len(expected + text)))
        rendered += marker + after
        expected += text + after
    restored = markers.restore(rendered)
    assert restored.text == expected
    assert restored.numbers == set(range(len(marked)))
    assert restored.moved(places) == moved
    assert markers.split(rendered) == (around[: len(marked) + 1], list(range(len(marked))))


def test_markers_survive_what_templates_do_to_text() -> None:
    marker = Markers([]).mark("<|im_end|>")
    assert marker.upper() == marker.lower() == marker.title() == marker.strip() == marker
    assert marker.split() == [marker]


@pytest.mark.parametrize("change", [lambda m: m[1:], lambda m: m[:-1], lambda m: m[::-1]])
def test_altered_markers_are_refused(change: object) -> None:
    markers = Markers([])
    assert callable(change)
    with pytest.raises(ChatTemplateError, match="alters control strings"):
        markers.restore("a" + change(markers.mark("x")) + "b")


def test_a_marker_that_was_never_made_is_refused() -> None:
    markers, more = Markers([]), Markers([])
    more.mark("x")
    with pytest.raises(ChatTemplateError, match="alters control strings"):
        markers.restore(more.mark("y"))


def test_dropped_and_repeated_markers_are_visible() -> None:
    markers = Markers([])
    first, _ = markers.mark("x"), markers.mark("y")
    restored = markers.restore(first + first)
    assert (restored.text, restored.numbers) == ("xx", frozenset({0}))


def test_a_full_private_use_plane_is_refused() -> None:
    everything = "".join(map(chr, range(0xF0000, 0xFFFFE)))
    with pytest.raises(ChatTemplateError, match="private-use plane"):
        Markers([everything])


@given(
    st.lists(st.integers(0, 30), max_size=10, unique=True), st.integers(0, 30), st.integers(0, 5)
)
def test_overlap_is_sharing_a_character(ends: list[int], start: int, length: int) -> None:
    ends.sort()
    ranges = list(zip(ends[::2], ends[1::2], strict=False))
    characters = {i for first, last in ranges for i in range(first, last)}
    expected = bool(characters & set(range(start, start + length)))
    assert Ranges([*ranges, (40, 40)]).overlap((start, start + length)) == expected


def test_map_strings_reaches_every_string() -> None:
    value = {"a": ["b", 1, None, ("c",)], "d": {"e": "f"}}
    assert map_strings(value, str.upper) == {"A": ["B", 1, None, ["C"]], "D": {"E": "F"}}
    assert sorted(strings_in(value)) == ["a", "b", "c", "d", "e", "f"]


def test_find_typed_follows_what_the_template_writes() -> None:
    between, order = ["<user>", "<end><user>", "<end>"], [0, 1]
    contents = ["user", "  hi\n"]
    assert find_typed("<user>user<end><user>hi<end>", contents, between, order) == [
        (6, 10),
        (21, 23),
    ]
    assert find_typed("<user>user<end><user>  hi\n<end>", contents, between, order) == [
        (6, 10),
        (21, 26),
    ]
    for other in ("<bot>user<end><user>hi<end>", "<user>user<end><user>ho<end>", "<user>user"):
        assert find_typed(other, contents, between, order) is None
    assert find_typed("<user>user<end><user>hi<end>!", contents, between, order) is None


def test_search_typed_finds_contents_in_order() -> None:
    assert search_typed("[user] hi [bot] hi", [" hi ", "", "bot", "gone", "hi"]) == [
        (7, 9),
        (11, 14),
        (16, 18),
    ]
