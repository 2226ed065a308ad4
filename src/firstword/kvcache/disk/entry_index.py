"""Which blocks are in which segment, in memory: the entries as they lie in the files, and two maps.

Not here: files (segment), locks (store). A block costs about 650 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from firstword.kvcache.disk.record import RecordLayout, pack_tokens, unpack_tokens


class Place(NamedTuple):
    """Where a block lies.

    Args:
        segment: name of the segment.
        position: its number there.
    """

    segment: str
    position: int


@dataclass(frozen=True, slots=True)
class Found:
    """A block that is kept, and what its pages must be.

    Args:
        place: where it lies.
        digests: of its pages, one per KV group.
    """

    place: Place
    digests: tuple[bytes, ...]


class EntryIndex:
    """The entries of all segments of one store.

    Args:
        layout: of the entries.
    """

    def __init__(self, layout: RecordLayout) -> None:
        self._layout = layout
        self._entries: dict[str, bytearray] = {}
        self._places: dict[bytes, Place] = {}
        self._children: dict[bytes, list[bytes]] = {}  # parent -> keys

    def __len__(self) -> int:
        return len(self._places)

    @property
    def segments(self) -> list[str]:
        """Names of the segments that are known."""
        return list(self._entries)

    def count(self, segment: str) -> int:
        """Entries of a segment that were taken in, damaged ones included."""
        return len(self._entries.get(segment, b"")) // self._layout.entry_bytes

    def extend(self, segment: str, start: int, entries: bytes) -> None:
        """Take in further entries of a segment; damaged ones count but name nothing.

        Of two blocks of one name the one taken in last is found.

        Args:
            segment: its name.
            start: position of the first. Those that were taken in before are passed over; where
                some before them are missing, nothing happens.
            entries: whole entries.
        """
        held = self._entries.setdefault(segment, bytearray())
        position = len(held) // self._layout.entry_bytes
        if start > position:
            return
        entries = entries[(position - start) * self._layout.entry_bytes :]
        held += entries
        for names in self._layout.keys(entries):
            if names is not None:
                key, parent = names
                if key not in self._places:
                    self._children.setdefault(parent, []).append(key)
                self._places[key] = Place(segment, position)
            position += 1

    def holds(self, key: bytes, token_ids: tuple[int, ...]) -> bool:
        """Whether the block of that key is kept and has these tokens."""
        place = self._places.get(key)
        return place is not None and self._tokens(place) == pack_tokens(token_ids)

    def place(self, key: bytes) -> Place | None:
        """Where the block of that key lies."""
        return self._places.get(key)

    def find(self, key: bytes, token_ids: tuple[int, ...]) -> Found | None:
        """The block of that key, if it has these tokens."""
        if not self.holds(key, token_ids):
            return None
        place = self._places[key]
        entries = self._entries[place.segment]
        return Found(place, self._layout.digests(entries, place.position))

    def children(self, parent: bytes, limit: int) -> list[tuple[int, ...]]:
        """Tokens of the blocks that follow on `parent`: of the `limit` taken in last."""
        keys = self._children.get(parent, [])[-limit:]
        return [unpack_tokens(self._tokens(self._places[key])) for key in keys]

    def forget(self, key: bytes) -> None:
        """Let a block be found no more."""
        place = self._places.pop(key, None)
        if place is None:
            return
        start = place.position * self._layout.entry_bytes
        parent = bytes(self._entries[place.segment][start + 16 : start + 32])
        siblings = self._children[parent]
        siblings.remove(key)
        if not siblings:
            del self._children[parent]

    def drop(self, segment: str) -> list[bytes]:
        """Forget a segment.

        Returns:
            The keys that are found no more.
        """
        lost = []
        for names in self._layout.keys(self._entries.get(segment, b"")):
            if names is not None and self._is_in(segment, names[0]):
                lost.append(names[0])
                self.forget(names[0])
        self._entries.pop(segment, None)
        return lost

    def _is_in(self, segment: str, key: bytes) -> bool:
        place = self._places.get(key)
        return place is not None and place.segment == segment

    def _tokens(self, place: Place) -> bytes:
        return self._layout.tokens(self._entries[place.segment], place.position)
