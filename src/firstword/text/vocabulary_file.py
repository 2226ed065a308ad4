"""A compiled vocabulary as bytes: a header, a description, then the arrays.

A file is trusted when its digest is right and it names the same model file and format. Not here:
where such files are and when they go (vocabulary_cache).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstword.text.compiled import CompiledVocabulary, PackedStrings, Tables
from firstword.text.vocabulary import Vocabulary

FORMAT_VERSION = 1
"""Counts the changes of this format, of the hash tables, and of how text is cut and merged."""

_MAGIC = b"fwvocab1"
_HEADER = struct.Struct("<8sQQ32s32s")  # magic, size of the file, of the description, key, digest
_ALIGNMENT = 64
_ARRAYS = ("byte_ids", "piece_slots", "ranks", "merges", "merge_slots")
_PLAIN_FIELDS = ("model", "pre", "special_ids", "flags", "chat_template")


def file_key(identity: bytes) -> bytes:
    """32 bytes that another model file or format version changes.

    Args:
        identity: of the model file, all parts.
    """
    return sha256(repr((identity, FORMAT_VERSION)).encode()).digest()


def pack(compiled: CompiledVocabulary, key: bytes) -> bytes:
    """The whole file."""
    vocab, tables = compiled.vocab, compiled.tables
    assert isinstance(vocab.tokens, PackedStrings)
    arrays = {name: getattr(tables, name) for name in _ARRAYS}
    arrays |= _string_arrays("tokens", vocab.tokens)
    arrays["types"] = np.frombuffer(vocab.types, np.uint8)
    if tables.pieces is not vocab.tokens:
        arrays |= _string_arrays("pieces", tables.pieces)
    places, content = _lay_out(arrays)
    description = {name: getattr(vocab, name) for name in _PLAIN_FIELDS}
    description |= {"cut": tables.cut, "unwritable": list(tables.unwritable), "arrays": places}
    text = json.dumps(description).encode()
    text += b" " * (-(_HEADER.size + len(text)) % _ALIGNMENT)
    body = text + content
    fields = (_MAGIC, _HEADER.size + len(body), len(text), key)
    return _HEADER.pack(*fields, _digest(len(text), body)) + body


def unpack(data: memoryview, key: bytes, source: str) -> CompiledVocabulary | None:
    """A compiled vocabulary whose arrays lie in `data`.

    Args:
        data: the whole file.
        key: what the file has to be of.
        source: the model file, for messages.

    Returns:
        None if the file is damaged, or of another model or format.
    """
    if len(data) < _HEADER.size:
        return None
    magic, size, text_bytes, found_key, digest = _HEADER.unpack(data[: _HEADER.size])
    if (magic, size, found_key) != (_MAGIC, len(data), key):
        return None
    body = data[_HEADER.size :]
    if _digest(text_bytes, body) != digest:
        return None
    description = json.loads(bytes(body[:text_bytes]))
    arrays = _arrays(body[text_bytes:], description["arrays"])
    tokens = _strings("tokens", arrays)
    vocab = Vocabulary(
        source=source,
        tokens=tokens,
        types=arrays["types"].tobytes(),
        scores=[],
        merges=[],
        **{name: description[name] for name in _PLAIN_FIELDS},
    )
    tables = Tables(
        cut=description["cut"],
        pieces=_strings("pieces", arrays) if "pieces.data" in arrays else tokens,
        unwritable=bytes(description["unwritable"]),
        **{name: arrays[name] for name in _ARRAYS},
    )
    return CompiledVocabulary(vocab, tables)


def _digest(text_bytes: int, body: bytes | memoryview) -> bytes:
    """Of what the other fields of the header say nothing of."""
    digest = sha256(text_bytes.to_bytes(8, "little"))
    digest.update(body)
    return digest.digest()


def _string_arrays(name: str, strings: PackedStrings) -> dict[str, NDArray[Any]]:
    return {f"{name}.offsets": strings.offsets, f"{name}.data": strings.data}


def _strings(name: str, arrays: Mapping[str, NDArray[Any]]) -> PackedStrings:
    return PackedStrings(arrays[f"{name}.offsets"], arrays[f"{name}.data"])


def _lay_out(arrays: Mapping[str, NDArray[Any]]) -> tuple[list[list[object]], bytes]:
    """(name, type, shape and offset of each array, their bytes)."""
    places: list[list[object]] = []
    content = bytearray()
    for name, array in arrays.items():
        content += bytes(-len(content) % _ALIGNMENT)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        places.append([name, little.dtype.str, list(array.shape), len(content)])
        content += little.tobytes()
    return places, bytes(content)


def _arrays(content: memoryview, places: list[list[Any]]) -> dict[str, NDArray[Any]]:
    arrays = {}
    for name, dtype, shape, offset in places:
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(content, dtype, count, offset).reshape(shape)
    return arrays
