"""A vocabulary as arrays that a file can be mapped to, and that the compiled encoder reads.

Not here: the file (vocabulary_file) and where it is kept (vocabulary_cache). What is compiled are
the two kinds of pipelines whose patterns have compiled code; the others stay with `pipelines`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from firstword.text.byte_level import ALPHABET, spelled_bytes, unwritable_bytes
from firstword.text.pipelines import listed_merges, pre_tokenizer
from firstword.text.vocabulary import TokenType, Vocabulary

NO_RANK = 0xFFFFFFFF
"""In `Tables.ranks`: a token that is not joined from others."""

_BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
_REPLACEMENT = "\ufffd"


class PackedStrings(Sequence[str]):
    """Strings as UTF-8 one after the other.

    Args:
        offsets: [V + 1] where each begins, and where the last ends.
        data: [bytes].
    """

    def __init__(self, offsets: NDArray[np.uint32], data: NDArray[np.uint8]) -> None:
        self.offsets, self.data = offsets, data
        self._bytes = data.data

    @classmethod
    def of(cls, strings: Iterable[bytes]) -> PackedStrings:
        """Pack strings given as bytes."""
        strings = list(strings)
        offsets = np.zeros(len(strings) + 1, np.uint32)
        np.cumsum(np.fromiter(map(len, strings), np.uint32, len(strings)), out=offsets[1:])
        return cls(offsets, np.frombuffer(b"".join(strings), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        start, end = self.offsets[index : index + 2].tolist()
        return str(self._bytes[start:end], "utf-8")


@dataclass(frozen=True, eq=False)
class Tables:
    """What an encoder looks up.

    Args:
        cut: name of the code that cuts text for a byte-level vocabulary; None for SentencePiece.
        byte_ids: [256] token of each byte, -1 where there is none.
        pieces: [V] the bytes of tokens that are looked up by them.
        piece_slots: hash table of the tokens among `pieces`.
        ranks: [V] order in which SentencePiece tokens are joined, or NO_RANK; empty for byte-level.
        merges: [M, 3] left, right and joined token, best first; empty for SentencePiece.
        merge_slots: hash table of `merges`.
        unwritable: bytes that no token writes.
    """

    cut: str | None
    byte_ids: NDArray[np.int32]
    pieces: PackedStrings
    piece_slots: NDArray[np.int32]
    ranks: NDArray[np.uint32]
    merges: NDArray[np.int32]
    merge_slots: NDArray[np.int32]
    unwritable: bytes


@dataclass(frozen=True, eq=False)
class CompiledVocabulary:
    """A vocabulary and its tables.

    Args:
        vocab: with packed tokens, and without scores and merges, which are in the tables.
        tables: for the encoder.
    """

    vocab: Vocabulary
    tables: Tables


def compile_vocabulary(vocab: Vocabulary) -> CompiledVocabulary | None:
    """Compile a vocabulary if the compiled encoder gives the same ids as `pipelines`.

    Returns:
        None if it has patterns or tokens for which there is no compiled code, or if this
        installation has no compiled module.

    Raises:
        CheckpointError: a merge is malformed or names a token that does not exist.
    """
    try:
        import firstword.text.native  # noqa: F401
    except ImportError:
        return None
    packed = PackedStrings.of(token.encode() for token in vocab.tokens)
    tables = _byte_level(vocab) if vocab.model == "gpt2" else _sentencepiece(vocab, packed)
    if tables is None:
        return None
    return CompiledVocabulary(replace(vocab, tokens=packed, scores=[], merges=[]), tables)


def _byte_level(vocab: Vocabulary) -> Tables | None:
    from firstword.text import native

    pre, unwritable = pre_tokenizer(vocab), unwritable_bytes(vocab)
    # Unwritable characters are replaced; if the replacement is not writable, nothing is simple.
    if pre.cut is None or set(_REPLACEMENT.encode()) & set(unwritable):
        return None
    plain = vocab.ids_of(TokenType.NORMAL, TokenType.USER_DEFINED)
    pairs = listed_merges(vocab, plain)
    joined = [(plain[left], plain[right], plain[left + right]) for left, right in pairs]
    merges = np.array(joined, np.int32).reshape(-1, 3)
    byte_ids = np.full(256, -1, np.int32)
    for character, byte in ALPHABET.items():
        byte_ids[byte] = plain.get(character, -1)
    whole = [b""] * len(vocab.tokens)
    if pre.ignore_merges:
        for token, i in plain.items():
            whole[i] = spelled_bytes(token) or b""
    pieces = PackedStrings.of(whole)
    ids = np.array([i for i, piece in enumerate(whole) if piece], np.int32)
    return Tables(
        cut=pre.cut,
        byte_ids=byte_ids,
        pieces=pieces,
        piece_slots=native.piece_slots(pieces, ids),
        ranks=np.empty(0, np.uint32),
        merges=merges,
        merge_slots=native.merge_slots(merges),
        unwritable=unwritable,
    )


def _sentencepiece(vocab: Vocabulary, packed: PackedStrings) -> Tables | None:
    from firstword.text import native

    plain = vocab.ids_of(TokenType.NORMAL, TokenType.BYTE)
    joined = [
        i for token, i in plain.items() if vocab.types[i] == TokenType.NORMAL and len(token) > 1
    ]
    joined.sort(key=lambda i: (-vocab.scores[i], i))
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    unknown = vocab.special_ids.get("unknown")
    unknown_token = "" if unknown is None else vocab.tokens[unknown]
    if (
        any(token not in plain for token in byte_tokens)
        # These would take the place of a character, or join bytes: no real vocabulary has them.
        or (len(unknown_token) == 1 and unknown_token not in plain)
        or any("<0x" in (t := vocab.tokens[i]) and _BYTE_TOKEN.search(t) for i in joined)
    ):
        return None
    ranks = np.full(len(vocab.tokens), NO_RANK, np.uint32)
    if unknown is not None and unknown_token in plain:
        joined = [unknown if i == plain[unknown_token] else i for i in joined]
        plain[unknown_token] = unknown
    ranks[joined] = np.arange(len(joined), dtype=np.uint32)
    ids = np.array([i for token, i in plain.items() if token], np.int32)
    return Tables(
        cut=None,
        byte_ids=np.array([plain[token] for token in byte_tokens], np.int32),
        pieces=packed,
        piece_slots=native.piece_slots(packed, ids),
        ranks=ranks,
        merges=np.empty((0, 3), np.int32),
        merge_slots=np.empty(0, np.int32),
        unwritable=b"",
    )
