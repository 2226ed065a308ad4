"""Reader of GGUF files, versions 2 and 3, whole or split: metadata and tensors as views of a map.

Nothing in the file is believed: every count, offset, length, type, alignment and size is checked
against the file first. Not here: what names and keys mean (names), and the bits of a block (quant).
Source: the GGUF specification, ggml/docs/gguf.md.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from math import prod
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np

from firstword.errors import CheckpointError, UnsupportedModelError
from firstword.quant import GGMLType, RawTensor
from firstword.weights.gguf_values import Cursor, MetadataValue, read_value, shown
from firstword.weights.identity import file_identity
from firstword.weights.sniff import describe

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
MAX_DIMS = 4
# Far above any real file; they bound what a hostile header can make us build.
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_KEY_BYTES = (1 << 16) - 1
MAX_NAME_BYTES = 1024
MAX_PARTS = 10_000
# The least that a metadata entry and a tensor entry take: a name of one byte in each.
_MIN_KEY_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8
_SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_FINGERPRINT_SAMPLE = 256


@dataclass(frozen=True)
class _Part:
    """One file of a checkpoint, read and checked."""

    path: Path
    data: memoryview
    version: int
    metadata: dict[str, MetadataValue]
    tensors: dict[str, RawTensor]
    header_bytes: int
    status: os.stat_result


class GGUFFile:
    """An open GGUF checkpoint of one file or several.

    Views handed out (arrays, tensors) keep the mapping alive after `close`.
    """

    def __init__(self, parts: list[_Part]) -> None:
        self._parts = parts
        self._metadata = MappingProxyType(parts[0].metadata)
        self._tensors = MappingProxyType(_merge_tensors(parts))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Map a file, and its siblings where it is one of `NAME-00001-of-00003.gguf`.

        Args:
            path: the file, or any part of a split one.

        Raises:
            CheckpointError: a file is missing, is something else, or is not what it says.
            UnsupportedModelError: a version or tensor type that cannot be read.
        """
        path = Path(path)
        match = _SPLIT_NAME.fullmatch(path.name)
        if match is None or not 1 < int(match["count"]) <= MAX_PARTS:
            part = _read_part(path)
            _check_not_split(part)
            return cls([part])
        count = int(match["count"])
        names = [f"{match['stem']}-{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)]
        _check_all_present(path, names)
        parts = [_read_part(path.with_name(name)) for name in names]
        _check_split(parts)
        return cls(parts)

    @property
    def path(self) -> Path:
        """The file; the first part of a split one."""
        return self._parts[0].path

    @property
    def version(self) -> int:
        """Version of the format: 2 or 3."""
        return self._parts[0].version

    @property
    def metadata(self) -> Mapping[str, MetadataValue]:
        """Values by key; of a split file, those of its first part."""
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, RawTensor]:
        """Tensors by GGUF name, of all parts, in the order of the file."""
        return self._tensors

    @property
    def header_bytes(self) -> int:
        """Bytes before the tensor data, of all parts."""
        return sum(part.header_bytes for part in self._parts)

    @property
    def num_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(len(part.data) for part in self._parts)

    @cached_property
    def fingerprint(self) -> str:
        """What tells this model from others wherever the file lies: blake2b-128 in hexadecimal.

        Over sizes, headers, and the first bytes of every tensor: two fine-tunes of one model may
        share the header to the last byte.
        """
        digest = blake2b(digest_size=16)
        for part in self._parts:
            digest.update(len(part.data).to_bytes(8, "little"))
            digest.update(part.data[: part.header_bytes])
            for tensor in part.tensors.values():
                digest.update(tensor.data[:_FINGERPRINT_SAMPLE].tobytes())
        return digest.hexdigest()

    @cached_property
    def identity(self) -> bytes:
        """What tells this state of these files from any other, for what is derived from them."""
        return b"".join(file_identity(p.data, p.status, p.header_bytes) for p in self._parts)

    def forget_pages(self) -> None:
        """Give back the memory of what has been read; reading it again brings it back."""
        for part in self._parts:
            if isinstance(part.data.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                part.data.obj.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Let go of the file; it is unmapped when the last view of it is gone."""
        empty = memoryview(b"")
        self._parts = [replace(p, data=empty, metadata={}, tensors={}) for p in self._parts]
        self._metadata = MappingProxyType({})
        self._tensors = MappingProxyType({})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _map(path: Path) -> tuple[memoryview, os.stat_result]:
    """Map a regular file read-only. Anything else could block (a pipe) or never end (a device)."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            found = sorted(p.name for p in path.glob("*.gguf"))[:5]
            hint = f"name one of {', '.join(found)}" if found else "it holds no .gguf file"
            raise CheckpointError(path, "file", f"is a directory, expected a GGUF file: {hint}")
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(path, "file", "is not a regular file, expected a GGUF file")
        if status.st_size == 0:
            raise CheckpointError(path, "file", describe(b""))
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            return memoryview(data), os.fstat(file.fileno())
    except (OSError, ValueError) as error:
        # ValueError: a null byte in the path, or a file cut to nothing since it was measured.
        reason = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(path, "file", f"cannot be opened: {reason}") from None


def _read_part(path: Path) -> _Part:
    data, status = _map(path)
    cursor = Cursor(path, data)
    if bytes(data[:4]) != MAGIC:
        raise CheckpointError(path, "magic", describe(bytes(data[:512])))
    cursor.take(4, "magic")
    version = cursor.u32("version")
    if version not in VERSIONS:
        raise _bad_version(path, version)
    num_tensors = cursor.count("tensor count", _MIN_TENSOR_BYTES, MAX_TENSORS)
    num_keys = cursor.count("metadata count", _MIN_KEY_BYTES, MAX_KEYS)
    metadata = _read_metadata(cursor, num_keys)
    alignment = _alignment(path, metadata)
    entries = [_read_entry(cursor, i, num_tensors) for i in range(num_tensors)]
    header_bytes = cursor.position
    data_start = -(-header_bytes // alignment) * alignment
    tensors = _place(cursor, entries, data_start, alignment)
    return _Part(path, data, version, metadata, tensors, header_bytes, status)


def _bad_version(path: Path, version: int) -> CheckpointError:
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        return UnsupportedModelError(
            path,
            "version",
            "the file is big-endian: convert it to little-endian with gguf-py's "
            "gguf-convert-endian, or download the usual one",
        )
    return UnsupportedModelError(
        path, "version", f"is {version}: expected 2 or 3; convert the model again if it is older"
    )


def _read_metadata(cursor: Cursor, count: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for i in range(count):
        key = cursor.name(f"metadata key {i + 1} of {count}", MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.error(f"metadata {shown(key)}", "appears twice")
        metadata[key] = read_value(cursor, f"metadata {shown(key)}")
    return metadata


def _alignment(path: Path, metadata: Mapping[str, MetadataValue]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(value, int) and not isinstance(value, bool):
        if 8 <= value <= MAX_ALIGNMENT and value & (value - 1) == 0:
            return value
    raise CheckpointError(
        path,
        "metadata 'general.alignment'",
        f"is {shown(value)}: expected a power of two from 8 to {MAX_ALIGNMENT:,}",
    )


@dataclass(frozen=True)
class _Entry:
    """A tensor as the header describes it; its place in the file is not checked yet."""

    name: str
    where: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int

    @property
    def nbytes(self) -> int:
        return prod(self.shape) // self.type.block_size * self.type.type_size


def _read_entry(cursor: Cursor, index: int, count: int) -> _Entry:
    name = cursor.name(f"tensor {index + 1} of {count}, name", MAX_NAME_BYTES)
    where = f"tensor {shown(name)}"
    num_dims = cursor.u32(f"{where}, number of dimensions")
    if not 1 <= num_dims <= MAX_DIMS:
        raise cursor.error(
            f"{where}, number of dimensions", f"is {num_dims:,}: expected 1 to {MAX_DIMS}"
        )
    dims = [cursor.u64(f"{where}, dimension {i}") for i in range(num_dims)]
    for i, dim in enumerate(dims):
        # No dimension can be longer than the file has bits; so products stay small numbers.
        if not 0 < dim <= 8 * len(cursor.data):
            raise cursor.error(
                f"{where}, dimension {i}",
                f"is {dim:,}: expected 1 to what a file of {len(cursor.data):,} bytes can hold",
            )
    ggml_type = _ggml_type(cursor, where)
    if dims[0] % ggml_type.block_size:
        raise cursor.error(
            f"{where}, dimension 0",
            f"is {dims[0]:,}: rows of {ggml_type.name} are multiples of {ggml_type.block_size}",
        )
    offset = cursor.u64(f"{where}, offset")
    return _Entry(name, where, tuple(reversed(dims)), ggml_type, offset)


def _ggml_type(cursor: Cursor, where: str) -> GGMLType:
    number = cursor.u32(f"{where}, type")
    try:
        ggml_type = GGMLType(number)
    except ValueError:
        raise UnsupportedModelError(
            cursor.path, f"{where}, type", f"is {number}, a type that this version does not know"
        ) from None
    if not ggml_type.has_known_size:
        raise UnsupportedModelError(
            cursor.path,
            f"{where}, type",
            f"is {ggml_type.name}, which has been withdrawn from "
            "the format: convert the model again or choose another file of it",
        )
    return ggml_type


def _place(
    cursor: Cursor, entries: list[_Entry], data_start: int, alignment: int
) -> dict[str, RawTensor]:
    """Check that every tensor lies within the file, aligned and apart from the others."""
    tensors: dict[str, RawTensor] = {}
    for entry in entries:
        if entry.name in tensors:
            raise cursor.error(entry.where, "appears twice")
        if entry.offset % alignment:
            raise cursor.error(
                f"{entry.where}, offset",
                f"is {entry.offset:,}: expected a multiple of the alignment {alignment}",
            )
        start, end = data_start + entry.offset, data_start + entry.offset + entry.nbytes
        if end > len(cursor.data):
            raise cursor.error(
                f"{entry.where}, data",
                f"expected {entry.nbytes:,} bytes at offset {start:,}, but the file ends at "
                f"{len(cursor.data):,}: it is truncated or damaged, download it again",
            )
        view = np.frombuffer(cursor.data, np.uint8, entry.nbytes, start)
        tensors[entry.name] = RawTensor(entry.name, entry.shape, entry.type, view)
    _check_apart(cursor, entries)
    return tensors


def _check_apart(cursor: Cursor, entries: list[_Entry]) -> None:
    end, previous = 0, ""
    for entry in sorted(entries, key=lambda e: e.offset):
        if entry.offset < end:
            raise cursor.error(
                f"{entry.where}, offset",
                f"is {entry.offset:,}: the data of {shown(previous)} reaches to {end:,}",
            )
        end, previous = entry.offset + entry.nbytes, entry.name


def _merge_tensors(parts: list[_Part]) -> dict[str, RawTensor]:
    merged: dict[str, RawTensor] = {}
    for part in parts:
        for name, tensor in part.tensors.items():
            if name in merged:
                raise CheckpointError(
                    part.path, f"tensor {shown(name)}", "is in another part of the file too"
                )
            merged[name] = tensor
    return merged


def _check_not_split(part: _Part) -> None:
    count = part.metadata.get("split.count", 0)
    if count not in (0, 1):
        raise CheckpointError(
            part.path,
            "metadata 'split.count'",
            f"is {shown(count)}, but the file's name is not like NAME-00001-of-00003.gguf: give "
            "the parts back their names, and keep them in one folder",
        )


def _check_all_present(path: Path, names: list[str]) -> None:
    missing = [name for name in names if not path.with_name(name).exists()]
    if missing:
        shown_names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise CheckpointError(
            path,
            "split file",
            f"{len(missing)} of {len(names)} parts are missing: {shown_names}; put all parts into "
            "one folder",
        )


def _check_split(parts: list[_Part]) -> None:
    """Check that the parts say of themselves what their names say, and hold all tensors."""
    total = sum(len(part.tensors) for part in parts)
    for number, part in enumerate(parts):
        expected = {"split.no": number, "split.count": len(parts), "split.tensors.count": total}
        for key, value in expected.items():
            if part.metadata.get(key) != value:
                raise CheckpointError(
                    part.path,
                    f"metadata {key!r}",
                    f"expected {value}, found {shown(part.metadata.get(key))}: is it a part of "
                    "another model?",
                )
        if part.version != parts[0].version:
            raise CheckpointError(
                part.path,
                "version",
                f"expected {parts[0].version} as in the first part, found {part.version}",
            )
