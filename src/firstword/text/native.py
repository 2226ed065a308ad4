"""The compiled twin of the pipelines: the same ids, from the tables of a compiled vocabulary.

Not here: what the tables hold (compiled), and the encoders themselves, which csrc/text defines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import firstword._native as _native

if TYPE_CHECKING:
    from firstword.text.compiled import PackedStrings, Tables


class NativeEncoder:
    """Plain text to ids; any number of threads may use it at once.

    Args:
        tables: of the vocabulary; they are read in place.
    """

    def __init__(self, tables: Tables) -> None:
        pieces = tables.pieces
        if tables.cut is None:
            self._encoder = _native.TextEncoder.sentencepiece(
                byte_ids=tables.byte_ids,
                offsets=pieces.offsets,
                strings=pieces.data,
                piece_slots=tables.piece_slots,
                ranks=tables.ranks,
            )
        else:
            self._encoder = _native.TextEncoder.byte_level(
                cut=_native.Cut[tables.cut],
                byte_ids=tables.byte_ids,
                merges=tables.merges,
                merge_slots=tables.merge_slots,
                offsets=pieces.offsets,
                strings=pieces.data,
                piece_slots=tables.piece_slots,
            )

    def encode(self, text: str) -> list[int]:
        """Token ids of a text without special tokens."""
        return self._encoder.encode(text.encode())

    def encode_with_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Token ids [T], and the half-open range of characters of each [T]."""
        return self._encoder.encode_with_spans(text.encode())


def piece_slots(strings: PackedStrings, ids: NDArray[np.int32]) -> NDArray[np.int32]:
    """A hash table that finds these ids by their strings."""
    return _native.piece_slots(strings.offsets, strings.data, ids)


def merge_slots(merges: NDArray[np.int32]) -> NDArray[np.int32]:
    """A hash table that finds merges [M, 3] by their first two ids."""
    return _native.merge_slots(merges)
