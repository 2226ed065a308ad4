"""Private-use markers that stand for texts while a chat template is rendered.

Not here: which texts are marked and why (chat_template).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from firstword.errors import ChatTemplateError

Range = tuple[int, int]
"""Half-open range of characters."""


class Ranges:
    """Ranges in order that do not overlap each other; empty ones are left out."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges = [(start, end) for start, end in ranges if start < end]
        self._starts = [start for start, _ in self._ranges]

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def overlap(self, span: Range) -> bool:
        """Whether `span` shares a character with one of the ranges."""
        last = bisect_left(self._starts, span[1]) - 1
        return last >= 0 and self._ranges[last][1] > span[0] < span[1]


_FIRST, _LAST = 0xF0000, 0xFFFFD
_DIGITS = 10


class Markers:
    """Makes markers, finds them again and puts the marked texts back.

    A marker is an opening character, decimal digits and a closing character, all from a part of
    the private-use plane 15 that none of the texts around uses: no template changes the case,
    the spacing or the spelling of such characters.

    Args:
        others: all texts that the markers must not be mistaken in.

    Raises:
        ChatTemplateError: the texts use the whole private-use plane.
    """

    def __init__(self, others: Iterable[str]) -> None:
        first = _unused_characters("".join(others), _DIGITS + 2)
        self._digits = {str(digit): chr(first + digit) for digit in range(_DIGITS)}
        self._open, self._close = chr(first + _DIGITS), chr(first + _DIGITS + 1)
        digits = "".join(self._digits.values())
        self._pattern = re.compile(f"{self._open}([{digits}]+){self._close}")
        self._values = {character: digit for digit, character in self._digits.items()}
        self._stray = re.compile(f"[{self._open}{digits}{self._close}]")
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        """A new marker that stands for `text`."""
        self._texts.append(text)
        number = "".join(self._digits[digit] for digit in str(len(self._texts) - 1))
        return f"{self._open}{number}{self._close}"

    def __len__(self) -> int:
        return len(self._texts)

    def split(self, rendered: str) -> tuple[list[str], list[int]]:
        """([n + 1] texts between the markers, [n] numbers of the markers, counted from 0).

        Raises:
            ChatTemplateError: a marker was altered.
        """
        parts = self._pattern.split(rendered)
        between, spelled = parts[0::2], parts[1::2]
        numbers = [int("".join(self._values[c] for c in digits)) for digits in spelled]
        if any(map(self._stray.search, between)) or any(n >= len(self) for n in numbers):
            raise ChatTemplateError("the chat template alters control strings typed in messages")
        return between, numbers

    def restore(self, rendered: str) -> Restored:
        """The rendered text with the marked texts put back.

        Raises:
            ChatTemplateError: a marker was altered.
        """
        between, numbers = self.split(rendered)
        text, marked_ends, shifts = between[0], [0], [0]
        pieces = [text]
        marked_at = len(text)
        for number, following in zip(numbers, between[1:], strict=True):
            marker_length = len(str(number)) + 2
            marked_ends.append(marked_at + marker_length)
            shifts.append(shifts[-1] + len(self._texts[number]) - marker_length)
            pieces += [self._texts[number], following]
            marked_at += marker_length + len(following)
        return Restored("".join(pieces), frozenset(numbers), marked_ends, shifts)


@dataclass(frozen=True)
class Restored:
    """A text with its markers replaced.

    Args:
        text: the text.
        numbers: the markers that occurred in it.
        marked_ends: [n + 1] where each marker ended before; 0 first.
        shifts: [n + 1] by how much the text after it has moved.
    """

    text: str
    numbers: frozenset[int]
    marked_ends: list[int]
    shifts: list[int]

    def moved(self, ranges: Iterable[Range]) -> list[Range]:
        """Ranges of the text with markers as ranges of `text`; no end lies inside a marker."""
        return [(self._moved(start), self._moved(end)) for start, end in ranges]

    def _moved(self, position: int) -> int:
        return position + self.shifts[bisect_right(self.marked_ends, position) - 1]


def map_strings(value: object, change: Callable[[str], str]) -> object:
    """A copy of a JSON-like value with every string changed, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {map_strings(key, change): map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_strings(item, change) for item in value]
    return value


def strings_in(value: object) -> list[str]:
    """All strings of a JSON-like value."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    map_strings(value, note)
    return found


def find_typed(
    rendered: str, contents: Sequence[str], between: Sequence[str], order: Sequence[int]
) -> list[Range] | None:
    """Where message contents lie in a rendered text, given what the template writes around them.

    Args:
        rendered: the text.
        contents: [messages] contents; the template may have trimmed them or written them as JSON.
        between: [n + 1] what the template writes before, between and after contents.
        order: [n] the message of each content.

    Returns:
        [n] ranges, or None if the text is not made that way.
    """
    if not rendered.startswith(between[0]):
        return None
    ranges = []
    at = len(between[0])
    for message, following in zip(order, between[1:], strict=True):
        content = contents[message]
        variants = (content, content.strip(), content.rstrip(), content.lstrip())
        as_json = (json.dumps(variant, ensure_ascii=False)[1:-1] for variant in variants)
        fits = [v for v in (*variants, *as_json) if rendered.startswith(v + following, at)]
        if not fits:
            return None
        ranges.append((at, at + len(fits[0])))
        at += len(fits[0]) + len(following)
    return ranges if at == len(rendered) else None


def search_typed(rendered: str, contents: Sequence[str]) -> list[Range]:
    """Where message contents lie in a rendered text, one after the other, as far as found."""
    ranges = []
    at = 0
    for content in contents:
        wanted = content.strip()
        found = rendered.find(wanted, at) if wanted else -1
        if found >= 0:
            at = found + len(wanted)
            ranges.append((found, at))
    return ranges


def _unused_characters(text: str, count: int) -> int:
    """First of `count` private-use characters in a row that the text lacks."""
    used = {ord(character) for character in set(text) if _FIRST <= ord(character) <= _LAST}
    for first in range(_FIRST, _LAST - count, count):
        if not used.intersection(range(first, first + count)):
            return first
    raise ChatTemplateError(
        "the messages use the whole private-use plane U+F0000 to U+FFFFD: no character is left "
        "to mark control strings with; remove some"
    )
