import os
import shutil
import struct
from pathlib import Path
from time import perf_counter

import gguf
import numpy as np
import pytest

from firstword.errors import CheckpointError, UnsupportedModelError
from firstword.quant import GGMLType, dequantize
from firstword.weights.gguf import GGUFFile
from firstword.weights.gguf_values import NumericArray, StringArray, ValueType
from tests.weights.raw_gguf import Info, RawGGUF, array, string, text_value, u32, value
from tests.weights.tiny_gguf import write_tiny_llama

NAME = text_value("llama")
ONE = RawGGUF(infos=[Info()], data=bytes(32))


def refuse(path: Path, where: str, *words: str) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        GGUFFile.open(path)
    assert caught.value.path == str(path)
    assert where in caught.value.where
    for word in words:
        assert word in caught.value.problem
    return caught.value


# Sound files.


@pytest.mark.parametrize("version", [2, 3])
def test_reads_metadata_and_tensors(tmp_path: Path, version: int) -> None:
    values = np.arange(16, dtype="<f4")
    raw = RawGGUF(
        keys=[
            ("general.architecture", NAME),
            ("n", u32(7)),
            ("tokens", array(ValueType.STRING, 2, string("a") + string("b"))),
        ],
        infos=[Info("w", (8, 2)), Info("b", (4,), GGMLType.F16, 64)],
        data=values.tobytes() + np.ones(4, "<f2").tobytes(),
        version=version,
    )
    with GGUFFile.open(raw.write(tmp_path)) as file:
        assert file.version == version
        assert file.metadata["n"] == 7
        tokens = file.metadata["tokens"]
        assert isinstance(tokens, StringArray) and tokens.to_list() == ["a", "b"]
        assert list(file.tensors) == ["w", "b"]
        weight = file.tensors["w"]
        assert weight.shape == (2, 8)
        np.testing.assert_array_equal(dequantize(weight), values.reshape(2, 8))
        assert dequantize(file.tensors["b"]).tolist() == [1, 1, 1, 1]
        assert file.num_bytes == file.path.stat().st_size
        assert 0 < file.header_bytes <= file.num_bytes - 72


def test_tensor_data_is_a_read_only_view_of_the_file(tmp_path: Path) -> None:
    file = GGUFFile.open(ONE.write(tmp_path))
    data = file.tensors["t"].data
    assert not data.flags.owndata and not data.flags.writeable
    file.close()
    assert not file.tensors and not file.metadata
    assert data.tolist() == [0] * 32  # the mapping lives as long as a view of it


def test_another_alignment(tmp_path: Path) -> None:
    raw = RawGGUF([("general.alignment", u32(128))], [Info("a", (2,), offset=128)], alignment=128)
    raw.data = bytes(128) + np.array([3, 4], "<f4").tobytes()
    assert dequantize(GGUFFile.open(raw.write(tmp_path)).tensors["a"]).tolist() == [3, 4]


def test_a_file_without_tensors(tmp_path: Path) -> None:
    raw = RawGGUF([("k", array(ValueType.INT32, 0, b""))])
    file = GGUFFile.open(raw.write(tmp_path))
    numbers = file.metadata["k"]
    assert isinstance(numbers, NumericArray) and numbers.to_list() == []
    assert len(file.tensors) == 0


def test_equals_the_gguf_package_on_a_whole_model(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", dtype=GGMLType.Q5_1, chat_template="{{ x }}")
    _assert_equals_the_gguf_package(path)


def _assert_equals_the_gguf_package(path: Path) -> None:
    theirs = gguf.GGUFReader(path)
    ours = GGUFFile.open(path)
    fields = {k: f for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert ours.metadata.keys() == fields.keys()
    for key, entry in fields.items():
        mine = ours.metadata[key]
        plain = mine.to_list() if isinstance(mine, NumericArray | StringArray) else mine
        assert plain == entry.contents(), key
    assert list(ours.tensors) == [t.name for t in theirs.tensors]
    for tensor in theirs.tensors:
        mine_raw = ours.tensors[tensor.name]
        assert mine_raw.type == tensor.tensor_type.value
        assert mine_raw.shape == tuple(reversed(tensor.shape.tolist()))
        np.testing.assert_array_equal(mine_raw.data, tensor.data.view(np.uint8).reshape(-1))


@pytest.mark.deep  # the package takes 6 s to read it
@pytest.mark.real_model
def test_equals_the_gguf_package_on_smollm2(smollm2_path: Path) -> None:
    _assert_equals_the_gguf_package(smollm2_path)


@pytest.mark.real_model
def test_a_vocabulary_of_262144_tokens_opens_quickly(gemma3_path: Path) -> None:
    seconds = []
    for _ in range(3):  # the best of three: a shared machine may pause us
        start = perf_counter()
        file = GGUFFile.open(gemma3_path)
        seconds.append(perf_counter() - start)
    tokens = file.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, StringArray) and len(tokens) == 262_144
    assert min(seconds) < 0.3


# The fingerprint.


def test_fingerprint_is_of_the_content_and_not_of_the_place(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf")
    moved = tmp_path / "elsewhere.gguf"
    shutil.copy(path, moved)
    first = GGUFFile.open(path).fingerprint
    assert GGUFFile.open(moved).fingerprint == first
    assert len(first) == 32 and int(first, 16)


def test_fingerprint_tells_fine_tunes_with_equal_headers_apart(tmp_path: Path) -> None:
    a = GGUFFile.open(write_tiny_llama(tmp_path / "a.gguf", seed=1))
    b = GGUFFile.open(write_tiny_llama(tmp_path / "b.gguf", seed=2))
    assert a.num_bytes == b.num_bytes
    assert a.fingerprint != b.fingerprint


# The identity.


def test_identity_is_of_one_state_of_one_file(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf")
    first = GGUFFile.open(path).identity
    assert GGUFFile.open(path).identity == first
    shutil.copy(path, tmp_path / "copy.gguf")
    assert GGUFFile.open(tmp_path / "copy.gguf").identity != first
    os.utime(path, ns=(1, 1))
    assert GGUFFile.open(path).identity != first


# Files that are not GGUF.


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"", "empty"), (b"<!DOCTYPE html>", "web page"), (b"GGU", "found b'GGU'")],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    refuse(path, "", word)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path / "absent.gguf", "file", "No such file")
    refuse(tmp_path, "file", "directory", "holds no .gguf file")
    ONE.write(tmp_path, "inside.gguf")
    refuse(tmp_path, "file", "name one of inside.gguf")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refuse(pipe, "file", "not a regular file")
    refuse(Path("nul\0byte"), "file", "cannot be opened")


@pytest.mark.parametrize("version", [0, 1, 4, 2**32 - 1])
def test_other_versions_are_refused(tmp_path: Path, version: int) -> None:
    path = RawGGUF(version=version).write(tmp_path)
    assert isinstance(refuse(path, "version", f"is {version}"), UnsupportedModelError)


def test_big_endian_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    refuse(path, "version", "big-endian")


# Counts, names and keys.


@pytest.mark.parametrize("count", [2, 2**31, 2**60, 2**64 - 1])
def test_counts_beyond_the_file_are_refused(tmp_path: Path, count: int) -> None:
    refuse(RawGGUF(num_tensors=count).write(tmp_path), "tensor count", f"{count:,}")
    refuse(RawGGUF(num_keys=count).write(tmp_path), "metadata count", f"{count:,}")


def test_counts_beyond_the_limits_are_refused(tmp_path: Path) -> None:
    raw = RawGGUF(num_keys=1 << 17, data=bytes(1 << 21))
    refuse(raw.write(tmp_path), "metadata count", "at most 65,536")
    raw = RawGGUF(num_tensors=1 << 17, data=bytes(1 << 23))
    refuse(raw.write(tmp_path), "tensor count", "at most 65,536")


def test_bad_keys_are_refused(tmp_path: Path) -> None:
    refuse(RawGGUF([("k", u32(1)), ("k", u32(1))]).write(tmp_path), "metadata 'k'", "twice")
    refuse(RawGGUF([(b"\xff\xfe", u32(1))]).write(tmp_path), "metadata key 1 of 1", "UTF-8")
    refuse(RawGGUF([("", u32(1))]).write(tmp_path), "metadata key 1 of 1", "empty")
    refuse(RawGGUF([("k" * 70_000, u32(1))]).write(tmp_path), "metadata key 1", "at most 65,535")


def test_bad_tensor_names_are_refused(tmp_path: Path) -> None:
    twice = RawGGUF(infos=[Info("t"), Info("t", offset=32)], data=bytes(64))
    refuse(twice.write(tmp_path), "tensor 't'", "twice")
    refuse(RawGGUF(infos=[Info(b"\xff")], data=bytes(32)).write(tmp_path), "tensor 1 of 1", "UTF-8")
    refuse(RawGGUF(infos=[Info("n" * 2000)], data=bytes(32)).write(tmp_path), "tensor 1", "1,024")


@pytest.mark.parametrize(
    "bad",
    [
        u32(0),
        u32(1),
        u32(33),
        u32(48),
        u32(1 << 31),
        text_value("32"),
        value(ValueType.BOOL, b"\1"),
        value(ValueType.INT32, struct.pack("<i", -32)),
        value(ValueType.FLOAT32, struct.pack("<f", 32.0)),
    ],
)
def test_alignments_that_are_none_are_refused(tmp_path: Path, bad: bytes) -> None:
    raw = RawGGUF([("general.alignment", bad)], [Info()], bytes(32))
    refuse(raw.write(tmp_path), "general.alignment", "power of two")


# Tensors.


@pytest.mark.parametrize("num_dims", [0, 5, 2**32 - 1])
def test_numbers_of_dimensions_are_checked(tmp_path: Path, num_dims: int) -> None:
    raw = RawGGUF(infos=[Info(num_dims=num_dims)], data=bytes(64))
    refuse(raw.write(tmp_path), "tensor 't', number of dimensions", f"is {num_dims:,}")


@pytest.mark.parametrize("dim", [0, 2**32, 2**63, 2**64 - 1])
def test_dimensions_are_checked(tmp_path: Path, dim: int) -> None:
    raw = RawGGUF(infos=[Info(dims=(8, dim))], data=bytes(64))
    refuse(raw.write(tmp_path), "tensor 't', dimension 1", f"is {dim:,}")


def test_products_of_dimensions_do_not_overflow(tmp_path: Path) -> None:
    # 2^16 four times is 2^64, which is 0 in 64 bits.
    raw = RawGGUF(infos=[Info(dims=(1 << 16,) * 4)], data=bytes(1 << 14))
    refuse(raw.write(tmp_path), "tensor 't', data", f"{1 << 66:,} bytes")


def test_rows_are_whole_blocks(tmp_path: Path) -> None:
    raw = RawGGUF(infos=[Info(dims=(48, 2), type=GGMLType.Q4_0)], data=bytes(54))
    refuse(raw.write(tmp_path), "tensor 't', dimension 0", "multiples of 32")


@pytest.mark.parametrize("number", [4, 9, 31, 42, 2**32 - 1])
def test_types_without_a_known_layout_are_unsupported(tmp_path: Path, number: int) -> None:
    raw = RawGGUF(infos=[Info(type=number)], data=bytes(32))
    error = refuse(raw.write(tmp_path), "tensor 't', type")
    assert isinstance(error, UnsupportedModelError)


@pytest.mark.parametrize("offset", [1, 8, 31])
def test_offsets_are_aligned(tmp_path: Path, offset: int) -> None:
    raw = RawGGUF(infos=[Info(offset=offset)], data=bytes(96))
    refuse(raw.write(tmp_path), "tensor 't', offset", "multiple of the alignment 32")


@pytest.mark.parametrize("offset", [32, 2**63, 2**64 - 32])
def test_data_lies_within_the_file(tmp_path: Path, offset: int) -> None:
    raw = RawGGUF(infos=[Info(offset=offset)], data=bytes(63))
    refuse(raw.write(tmp_path), "tensor 't', data", "expected 32 bytes", "truncated")


def test_tensors_do_not_overlap(tmp_path: Path) -> None:
    raw = RawGGUF(infos=[Info("a", (8, 2)), Info("b", (8,), offset=32)], data=bytes(64))
    refuse(raw.write(tmp_path), "tensor 'b'", "'a' reaches to 64")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    raw = RawGGUF([("k", text_value("v"))], [Info("a"), Info("b", (4, 2), offset=32)], bytes(64))
    whole = raw.pack()
    path = tmp_path / "model.gguf"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        refuse(path, "")


# Split files.


def write_split(folder: Path, num_tensors: int = 5) -> list[Path]:
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=2)
    for i in range(num_tensors):
        writer.add_tensor(f"t{i}", np.full(8, i, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob("m-*.gguf"))


def test_split_files_open_as_one_from_any_part(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    assert [p.name for p in parts] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for part in parts:
        file = GGUFFile.open(part)
        assert file.path == parts[0]
        assert file.metadata["general.architecture"] == "llama"
        assert list(file.tensors) == [f"t{i}" for i in range(5)]
        assert dequantize(file.tensors["t4"]).tolist() == [4.0] * 8
        assert file.num_bytes == sum(p.stat().st_size for p in parts)


def test_the_identity_of_a_split_file_is_that_of_all_its_parts(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    seen = {GGUFFile.open(part).identity for part in parts}
    assert len(seen) == 1
    for part in parts:
        os.utime(part, ns=(1, 1))
        seen.add(GGUFFile.open(parts[0]).identity)
    assert len(seen) == 1 + len(parts)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    parts[1].unlink()
    refuse(parts[0], "split file", "1 of 3", "m-00002-of-00003.gguf")


def test_a_part_that_lost_its_name_is_refused(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    refuse(parts[0].rename(tmp_path / "renamed.gguf"), "split.count", "NAME-00001-of-00003.gguf")


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    parts = write_split(tmp_path)
    good = parts[1].read_bytes()
    shutil.copy(parts[0], parts[1])
    with pytest.raises(CheckpointError, match=r"00002-of-00003.gguf: metadata 'split.no'"):
        GGUFFile.open(parts[0])
    parts[1].write_bytes(good)
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(write_split(other, num_tensors=6)[2], parts[2])
    with pytest.raises(CheckpointError, match=r"split.tensors.count.*expected 6, found 5"):
        GGUFFile.open(parts[0])


def _part(tmp_path: Path, number: int, tensor: str, version: int = 3) -> Path:
    keys: list[tuple[str | bytes, bytes]] = [
        ("split.no", u32(number)),
        ("split.count", u32(2)),
        ("split.tensors.count", u32(2)),
    ]
    raw = RawGGUF(keys, [Info(tensor)], bytes(32), version=version)
    return raw.write(tmp_path, f"p-{number + 1:05d}-of-00002.gguf")


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    _part(tmp_path, 0, "t")
    path = _part(tmp_path, 1, "t")
    refuse(path, "tensor 't'", "another part")


def test_parts_of_two_versions_are_refused(tmp_path: Path) -> None:
    _part(tmp_path, 0, "a")
    refuse(_part(tmp_path, 1, "b", version=2), "version", "expected 3", "found 2")
