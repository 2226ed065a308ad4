"""Writes a GGUF file of a published shape with random weights, to measure speed without a download.

    python -m benchmarks.make_model llama-3.2-1b Q4_K_M model.gguf

Its answers mean nothing; its sizes, types and bytes per token are those of the published file.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np

from benchmarks.random_blocks import SUPPORTED, Bytes, RandomBlocks, Type, row_bytes, type_named
from benchmarks.vocabulary import Vocabulary, byte_level
from firstword.weights.gguf import GGUFFile

_CHUNK_BYTES = 32 * 2**20
_WEIGHT_STD = 0.02


@dataclass(frozen=True)
class Shape:
    """The sizes of a model of the Llama family.

    Args:
        name: as the file calls itself.
        layers, hidden, intermediate, heads, kv_heads, head_dim, vocab: its sizes.
        tied: the embedding is the output matrix too.
        rope_factor: by how much Llama 3's scaling stretches the longest wavelengths; 1 for none.
        context: tokens.
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int = 128_256
    tied: bool = False
    rope_factor: float = 1.0
    rope_theta: float = 500_000.0
    context: int = 131_072


SHAPES = {
    "llama-3.2-1b": Shape(
        "Llama 3.2 1B shape", 16, 2048, 8192, 32, 8, 64, tied=True, rope_factor=32.0
    ),
    "llama-3.1-8b": Shape("Llama 3.1 8B shape", 32, 4096, 14336, 32, 8, 128, rope_factor=8.0),
    "tiny": Shape("tiny shape", 3, 256, 512, 4, 2, 64, vocab=1024, tied=True, context=4096),
}
"""Sizes from the models' published config.json; "tiny" is for tests."""

MIXES = {"Q4_K_M": Type.Q4_K, "Q5_K_M": Type.Q5_K}
"""Types that are mixtures, with the type of most of their matrices."""


@dataclass(frozen=True)
class Tensor:
    """A tensor to be written: [rows, cols] of a matrix, one row for a vector."""

    name: str
    rows: int
    cols: int
    type: Type

    @property
    def is_vector(self) -> bool:
        """Whether it has one dimension in the file."""
        return self.rows == 1

    @property
    def num_bytes(self) -> int:
        """Bytes in the file."""
        return self.rows * row_bytes(self.cols, self.type)


def tensors(shape: Shape, mix: str) -> Iterator[Tensor]:
    """All tensors of a model, in the order of the file.

    Args:
        shape: its sizes.
        mix: a type's name, or one of `MIXES`.
    """
    base = MIXES[mix] if mix in MIXES else type_named(mix)
    top = _output_type(base)
    yield Tensor("token_embd.weight", shape.vocab, shape.hidden, top if shape.tied else base)
    for layer in range(shape.layers):
        yield from _layer_tensors(shape, mix, base, layer)
    yield Tensor("output_norm.weight", 1, shape.hidden, Type.F32)
    if not shape.tied:
        yield Tensor("output.weight", shape.vocab, shape.hidden, top)
    if shape.rope_factor != 1.0:
        yield Tensor("rope_freqs.weight", 1, shape.head_dim // 2, Type.F32)


def _layer_tensors(shape: Shape, mix: str, base: Type, layer: int) -> Iterator[Tensor]:
    important = Type.Q6_K if mix in MIXES and gets_more_bits(layer, shape.layers) else base
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for name, rows, cols, ggml_type in (
        ("attn_norm", 1, shape.hidden, Type.F32),
        ("attn_q", width, shape.hidden, base),
        ("attn_k", kv_width, shape.hidden, base),
        ("attn_v", kv_width, shape.hidden, important),
        ("attn_output", shape.hidden, width, base),
        ("ffn_norm", 1, shape.hidden, Type.F32),
        ("ffn_gate", shape.intermediate, shape.hidden, base),
        ("ffn_up", shape.intermediate, shape.hidden, base),
        ("ffn_down", shape.hidden, shape.intermediate, important),
    ):
        yield Tensor(f"blk.{layer}.{name}.weight", rows, cols, ggml_type)


def gets_more_bits(layer: int, num_layers: int) -> bool:
    """Whether llama.cpp's "M" mixtures store values and down projections of a layer as Q6_K.

    They do in the first and last eighth of the layers and in every third one between.
    """
    eighth = num_layers // 8
    at_an_end = layer < eighth or layer >= 7 * num_layers // 8
    return at_an_end or (layer - eighth) % 3 == 2


def _output_type(base: Type) -> Type:
    """llama.cpp stores the output matrix of quantized files as Q6_K, unless they are Q8_0."""
    block_size, _ = gguf.GGML_QUANT_SIZES[base]
    return base if base == Type.Q8_0 or block_size == 1 else Type.Q6_K


def file_type(mix: str) -> int:
    """The number that files give for the types of most of their tensors."""
    by_name = {member.name: int(member) for member in gguf.LlamaFileType}
    names = (f"MOSTLY_{mix}", f"MOSTLY_{mix}_M", f"MOSTLY_{mix}_S", f"MOSTLY_{mix}_MOE")
    return next((by_name[name] for name in names if name in by_name), by_name["ALL_F32"])


def llama3_divisors(shape: Shape) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Divisors of the rotary frequencies (Llama 3's scaling, config "rope_type": "llama3").

    Frequencies with wavelengths above 8,192 are divided by the factor, those below 2,048 are left
    alone, and those between are blended.
    """
    low, high, original = 1.0, 4.0, 8192
    exponents = np.arange(0, shape.head_dim, 2, dtype=np.float64) / shape.head_dim
    wavelengths = 2 * math.pi * shape.rope_theta**exponents
    smooth = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    kept = (1 - smooth) / shape.rope_factor + smooth
    return (1 / kept).astype(np.float32)


def write_model(
    path: Path, shape: Shape, mix: str, vocabulary: Vocabulary | None = None, seed: int = 0
) -> int:
    """Write the file, a few megabytes at a time.

    Args:
        path: where to; replaced if it exists.
        shape: its sizes; `vocab` must be that of the vocabulary.
        mix: a type's name or one of `MIXES`.
        vocabulary: None for one made up of bytes and letters.
        seed: of the weights.

    Returns:
        Bytes of the tensors.

    Raises:
        ValueError: rows of the shape are no whole number of the type's blocks, or the vocabulary
            has another size.
    """
    vocabulary = vocabulary or byte_level(shape.vocab)
    if vocabulary.size != shape.vocab:
        raise ValueError(f"the vocabulary has {vocabulary.size} tokens, the shape {shape.vocab}")
    planned = list(tensors(shape, mix))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(file_type(mix))
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _write_metadata(writer, shape, vocabulary)
    for tensor in planned:
        row = row_bytes(tensor.cols, tensor.type)
        byte_shape = (row,) if tensor.is_vector else (tensor.rows, row)
        writer.add_tensor_info(
            tensor.name, byte_shape, np.dtype(np.uint8), tensor.num_bytes, raw_dtype=tensor.type
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    _write_data(writer, shape, planned, RandomBlocks(seed))
    writer.close()
    return sum(tensor.num_bytes for tensor in planned)


def _write_metadata(writer: gguf.GGUFWriter, shape: Shape, vocabulary: Vocabulary) -> None:
    writer.add_name(shape.name)
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)
    for key, value in vocabulary.metadata.items():
        _add_value(writer, key, value)


def _add_value(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, cast(Sequence[Any], value))


def _write_data(
    writer: gguf.GGUFWriter, shape: Shape, planned: list[Tensor], random: RandomBlocks
) -> None:
    assert writer.fout is not None, "the header has been written"
    out = writer.fout[0]
    for tensor in planned:
        writer.write_padding(out, out.tell())
        if tensor.name == "rope_freqs.weight":
            out.write(llama3_divisors(shape).tobytes())
        elif tensor.is_vector:
            out.write(np.ones(tensor.cols, np.float32).tobytes())
        else:
            for rows in _matrix(tensor, random):
                out.write(rows.data)
        writer.write_padding(out, out.tell())


def _matrix(tensor: Tensor, random: RandomBlocks) -> Iterator[Bytes]:
    """The rows of a matrix, a few megabytes at a time."""
    chunk = max(1, _CHUNK_BYTES // row_bytes(tensor.cols, tensor.type))
    for start in range(0, tensor.rows, chunk):
        num_rows = min(chunk, tensor.rows - start)
        yield random.rows(num_rows, tensor.cols, tensor.type, _WEIGHT_STD)


def read_vocabulary(path: Path) -> Vocabulary:
    """The tokenizer of another GGUF file, which may hold nothing else.

    Raises:
        CheckpointError: it is no GGUF file.
        ValueError: it has no tokenizer.
    """
    with GGUFFile.open(path) as file:
        entries = {k: _plain(v) for k, v in file.metadata.items() if k.startswith("tokenizer.")}
    tokens = entries.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list):
        raise ValueError(f"{path} has no vocabulary: tokenizer.ggml.tokens is missing")
    return Vocabulary(len(tokens), entries)


def _plain(value: object) -> object:
    """A metadata value as the writer takes it."""
    return value if isinstance(value, str | int | float) else list(cast(Iterable[object], value))


def main() -> None:
    """Write the model that the command line describes."""
    types = [*MIXES, *(t.name for t in SUPPORTED)]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("type", choices=types, metavar="type", help=", ".join(types))
    parser.add_argument("file", type=Path)
    parser.add_argument("--vocab", type=Path, help="GGUF file to take the tokenizer from")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    vocabulary = read_vocabulary(arguments.vocab) if arguments.vocab else None
    shape = SHAPES[arguments.shape]
    size = write_model(arguments.file, shape, arguments.type, vocabulary, arguments.seed)
    print(f"{arguments.file}: {size:,} bytes of weights", file=sys.stderr)


if __name__ == "__main__":
    main()
