"""Logits of whole prompts through a model alone: no scheduler, no sampling.

The blocks are dealt out by hand, so that every sequence keeps all of its K/V.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from firstword.batch import Float32Array, ForwardBatch
from firstword.kvcache.spec import KVCacheSpec
from tests.harness import Model

CHUNK = 256
"""Positions in one forward pass: bounds the memory of logits over a large vocabulary."""


def our_logits(path: Path, ids: Sequence[int], kv_dtype: str = "float32") -> Float32Array:
    """Logits after every position of a prompt -> [T, V], products by BLAS."""
    model = Model(path, numerics="blas", kv_dtype=kv_dtype)
    return np.concatenate(list(chunks_of_logits(model, ids)))


def chunks_of_logits(model: Model, ids: Sequence[int]) -> Iterator[Float32Array]:
    """Logits after every position, CHUNK rows at a time -> [<= CHUNK, V] each."""
    block_size = model.spec.block_size
    kv = model.ops.new_kv_pool(model.spec, len(model.spec.groups) * -(-len(ids) // block_size))
    for start in range(0, len(ids), CHUNK):
        yield model.network(chunk_batch(model.spec, ids, start), kv)


def chunk_batch(spec: KVCacheSpec, ids: Sequence[int], start: int) -> ForwardBatch:
    """The positions from `start` on, all of them wanting logits."""
    end = min(start + CHUNK, len(ids))
    positions = np.arange(start, end, dtype=np.int32)
    num_blocks = -(-len(ids) // spec.block_size)
    # Group g owns the blocks g B .. g B + B - 1.
    tables = np.arange(len(spec.groups) * num_blocks, dtype=np.int32).reshape(-1, 1, num_blocks)
    blocks, offsets = np.divmod(positions, spec.block_size)
    return ForwardBatch(
        token_ids=np.array(ids[start:end], np.int32),
        positions=positions,
        query_start_loc=np.array([0, len(positions)], np.int32),
        seq_lens=np.array([end], np.int32),
        block_tables=tuple(tables),
        slot_mapping=tuple(table[0, blocks] * spec.block_size + offsets for table in tables),
        logits_indices=np.arange(len(positions), dtype=np.int32),
    )
