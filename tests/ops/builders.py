"""Tensors, pools and batches for the tests of ops, made from few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from firstword.batch import CopySpan, Float32Array, ForwardBatch, Int32Array
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.ops.protocol import AttentionSpec
from firstword.quant import GGMLType, RawTensor

# Byte positions of the half-precision scales in a block.
HALVES = {
    GGMLType.Q4_0: (0,),
    GGMLType.Q4_1: (0, 2),
    GGMLType.Q5_0: (0,),
    GGMLType.Q5_1: (0, 2),
    GGMLType.Q8_0: (0,),
    GGMLType.Q2_K: (80, 82),
    GGMLType.Q3_K: (108,),
    GGMLType.Q4_K: (0, 2),
    GGMLType.Q5_K: (0, 2),
    GGMLType.Q6_K: (208,),
    GGMLType.IQ4_NL: (0,),
    GGMLType.IQ4_XS: (0,),
    GGMLType.MXFP4: (),
}


def float_tensor(
    values: NDArray[np.floating], ggml_type: GGMLType = GGMLType.F32, name: str = "w"
) -> RawTensor:
    """Values as a tensor of a float type."""
    dtype = {
        GGMLType.F32: np.float32,
        GGMLType.F16: np.float16,
        GGMLType.BF16: ml_dtypes.bfloat16,
    }[ggml_type]
    stored = np.ascontiguousarray(values.astype(dtype))
    return RawTensor(name, values.shape, ggml_type, stored.reshape(-1).view(np.uint8))


def random_tensor(
    ggml_type: GGMLType, shape: tuple[int, int], seed: int = 0, name: str = "w"
) -> RawTensor:
    """A matrix of any type, with random quants and ordinary scales."""
    rng = np.random.default_rng([seed, ggml_type])
    if ggml_type not in HALVES:
        return float_tensor(rng.normal(0, 0.1, shape), ggml_type, name)
    num_blocks = shape[0] * shape[1] // ggml_type.block_size
    data = rng.integers(0, 256, (num_blocks, ggml_type.type_size), dtype=np.uint8)
    for start in HALVES[ggml_type]:
        scales = rng.normal(0, 0.01, (num_blocks, 1)).astype("<f2")
        data[:, start : start + 2] = scales.view(np.uint8)
    if ggml_type == GGMLType.MXFP4:  # the exponent of a power of two
        data[:, :1] = rng.integers(116, 122, (num_blocks, 1))
    return RawTensor(name, shape, ggml_type, data.reshape(-1))


def one_group(
    num_kv_heads: int, head_dim: int, dtype: str = "float32", num_layers: int = 1
) -> KVCacheSpec:
    """A spec of one group; whether it slides is no business of ops."""
    layers = tuple(range(num_layers))
    return KVCacheSpec((KVGroup("all", "full", layers, num_kv_heads, head_dim, dtype, dtype),))


@dataclass(frozen=True)
class Chunk:
    """Consecutive positions start .. stop - 1 of a sequence whose blocks are `table`."""

    table: Sequence[int]
    start: int
    stop: int


def make_batch(
    *chunks: Chunk, block_size: int = 32, copies: tuple[CopySpan, ...] = ()
) -> ForwardBatch:
    """A batch of one KV group, with logits for each sequence's last row."""
    width = max((len(c.table) for c in chunks), default=0)
    tables = np.full((len(chunks), width), -1, dtype=np.int32)
    positions = [np.arange(c.start, c.stop, dtype=np.int32) for c in chunks]
    slots = []
    for index, chunk in enumerate(chunks):
        tables[index, : len(chunk.table)] = chunk.table
        blocks, offsets = np.divmod(positions[index], block_size)
        slots.append(tables[index, blocks] * block_size + offsets)
    ends = np.cumsum([len(p) for p in positions], dtype=np.int32)
    return ForwardBatch(
        token_ids=np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.int32),
        positions=joined(positions),
        query_start_loc=joined([np.zeros(1, dtype=np.int32), ends]),
        seq_lens=np.array([c.stop for c in chunks], dtype=np.int32),
        block_tables=(tables,),
        slot_mapping=(joined(slots),),
        logits_indices=ends - 1,
        block_copies=copies,
    )


def tokens_batch(token_ids: Sequence[int]) -> ForwardBatch:
    """A batch of one sequence from position 0 that matters for its token ids alone."""
    batch = make_batch(Chunk(range(len(token_ids) // 32 + 1), 0, len(token_ids)))
    return ForwardBatch(**{**batch.__dict__, "token_ids": np.array(token_ids, dtype=np.int32)})


def joined(parts: Sequence[NDArray[np.int32]]) -> Int32Array:
    return np.concatenate([np.zeros(0, dtype=np.int32), *parts]).astype(np.int32)


def normal(seed: int, *shape: int) -> Float32Array:
    """Standard normal values."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def attention_spec(
    num_heads: int = 6, num_kv_heads: int = 2, head_dim: int = 16, *, window: int | None = None
) -> AttentionSpec:
    """One layer of one group."""
    return AttentionSpec(0, 0, 0, num_heads, num_kv_heads, head_dim, head_dim**-0.5, window)


def same_bits(a: Float32Array, b: Float32Array) -> bool:
    """Equal bit for bit, the sign of zero included."""
    return a.shape == b.shape and bool((a.view(np.uint32) == b.view(np.uint32)).all())
