"""Finding token strings that stand whole in a text: user-defined and control tokens.

Not here: what becomes of the text between them (tokenizer).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class TokenMatcher:
    """Finds the strings of a table in a text: leftmost first, the longest at each place.

    Args:
        strings: token string -> token id; empty strings are ignored.
    """

    def __init__(self, strings: Mapping[str, int]) -> None:
        self._ids = {string: token_id for string, token_id in strings.items() if string}
        # Keyed by the first two characters: a single space is common, a run of them is a token.
        lengths: dict[str, set[int]] = {}
        for string in self._ids:
            lengths.setdefault(string[:2], set()).add(len(string))
        self._lengths = {key: sorted(found, reverse=True) for key, found in lengths.items()}
        firsts = {re.escape(string[0]) for string in self._ids}
        self._first = re.compile(f"[{''.join(sorted(firsts))}]") if firsts else None

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Yield (start, end, token id) of each match; matches do not overlap."""
        if self._first is None:
            return
        done = 0
        for candidate in self._first.finditer(text):
            start = candidate.start()
            length = self._longest_at(text, start) if start >= done else 0
            if length:
                done = start + length
                yield start, done, self._ids[text[start:done]]

    def _longest_at(self, text: str, start: int) -> int:
        for key in (text[start : start + 2], text[start]):
            for length in self._lengths.get(key, ()):
                piece = text[start : start + length]  # shorter at the end of the text
                if piece in self._ids:
                    return len(piece)
        return 0
