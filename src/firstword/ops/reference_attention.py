"""Attention over pages, in float32 by BLAS or one query row at a time in float64.

Both gather a sequence's keys and values into contiguous arrays first, which a fast kernel would
not. Not here: storing keys and values (reference).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array, ForwardBatch
from firstword.kvcache.storage import KVArray, KVView, PagedStorage
from firstword.ops.int8_kv import round_queries
from firstword.ops.protocol import AttentionSpec

FloatArray = NDArray[np.floating[Any]]  # float32 or float64, as the caller chose

# Scores held at a time, in values: 4 MB in float32, or one query row where that is more. The
# fastest of 2^16 .. 2^22 for a prompt of 1,500 tokens.
_MAX_SCORES = 1 << 20


@dataclass(frozen=True)
class _Context:
    """What one sequence's queries may see: positions start .. start + n - 1.

    Args:
        start: absolute position of the first key.
        keys: [K, n, d].
        values: [K, n, d].
    """

    start: int
    keys: FloatArray
    values: FloatArray

    def visible(self, first: int, last: int) -> tuple[FloatArray, FloatArray]:
        """Keys and values of the positions first .. last."""
        span = slice(first - self.start, last + 1 - self.start)
        return self.keys[:, span], self.values[:, span]


def blas_attention(
    q: Float32Array, batch: ForwardBatch, kv: PagedStorage, spec: AttentionSpec
) -> Float32Array:
    """Attention of q [T, H d] in float32, many query rows at a time -> [T, H d]."""
    q = _as_keys_are(q, kv.keys(spec.group), spec)
    out = np.zeros_like(q)
    for rows, positions, context in _sequences(batch, kv, spec, np.float32):
        firsts = _first_visible(positions, spec)
        keys_per_row = int((positions - firsts).max()) + 1
        tile = max(1, _MAX_SCORES // (spec.num_heads * keys_per_row))
        for begin in range(0, len(positions), tile):
            part = slice(begin, begin + tile)
            seen = range(int(firsts[part].min()), int(positions[part].max()) + 1)
            columns = np.arange(seen.start, seen.stop)
            masked = (columns > positions[part, None]) | (columns < firsts[part, None])  # [R, n]
            keys, values = context.visible(seen.start, seen.stop - 1)
            out[rows][part] = _attend(q[rows][part], keys, values, spec, masked)
    return out


def exact_attention(
    q: Float32Array, batch: ForwardBatch, kv: PagedStorage, spec: AttentionSpec
) -> Float32Array:
    """Attention of q [T, H d] in float64, rounded once -> [T, H d].

    Each query row meets exactly the positions it sees, in arrays whose shapes depend on its
    position and the window alone. Batch, chunking and where blocks lie therefore cannot change a
    bit, and nothing that is masked is ever multiplied.
    """
    q = _as_keys_are(q, kv.keys(spec.group), spec)
    out = np.zeros_like(q)
    for rows, positions, context in _sequences(batch, kv, spec, np.float64):
        firsts = _first_visible(positions, spec)
        for row in range(len(positions)):
            keys, values = context.visible(int(firsts[row]), int(positions[row]))
            query = q[rows][row : row + 1].astype(np.float64)
            out[rows][row] = _attend(query, keys, values, spec)[0]
    return out


def _as_keys_are(q: Float32Array, keys: KVView, spec: AttentionSpec) -> Float32Array:
    """Queries [T, H d] as they meet stored keys: rotated and rounded where those are."""
    if keys.scales is None:
        return q
    return round_queries(q.reshape(len(q), spec.num_heads, spec.head_dim)).reshape(q.shape)


def _first_visible(positions: NDArray[np.int32], spec: AttentionSpec) -> NDArray[np.int32]:
    if spec.window is None:
        return np.zeros_like(positions)
    return np.maximum(positions - (spec.window - 1), 0)


def _sequences(
    batch: ForwardBatch, kv: PagedStorage, spec: AttentionSpec, dtype: type[np.floating[Any]]
) -> Iterator[tuple[slice, NDArray[np.int32], _Context]]:
    """Per sequence that has rows: its rows, their positions, and the keys and values they see."""
    for sequence in range(batch.num_seqs):
        rows = batch.rows_of(sequence)
        if rows.start == rows.stop or batch.seq_lens[sequence] == 0:  # a padded sequence
            continue
        positions = batch.positions[rows]
        start = int(_first_visible(positions, spec).min())
        stop = int(positions.max()) + 1
        table = batch.block_tables[spec.group][sequence]
        keys, values = (
            _dequantize(view, table, spec.index_in_group, range(start, stop)).astype(dtype)
            for view in (kv.keys(spec.group), kv.values(spec.group))
        )
        yield rows, positions, _Context(start, keys, values)


def _dequantize(view: KVView, table: NDArray[np.int32], layer: int, positions: range) -> KVArray:
    """A layer's numbers at consecutive positions of one sequence -> [K, n, d], scales applied."""
    values = _gather(view.values, table, layer, positions)
    if view.scales is None:
        return values
    scales = _gather(view.scales[..., None], table, layer, positions)
    return values.astype(np.float32) * scales.astype(np.float32)


def _gather(pages: KVArray, table: NDArray[np.int32], layer: int, positions: range) -> KVArray:
    """A layer's entries at consecutive positions of one sequence -> [K, n, d].

    Only blocks that hold one of the positions are read, and nothing outside them is returned.
    """
    block_size = pages.shape[3]
    first_block = positions.start // block_size
    blocks = table[first_block : -(-positions.stop // block_size)]
    assert (blocks >= 0).all(), f"a block of positions {positions} is not held: {blocks.tolist()}"
    gathered = pages[blocks, layer].swapaxes(0, 1)  # [K, blocks, block_size, d]
    flat = gathered.reshape(gathered.shape[0], -1, gathered.shape[3])
    begin = positions.start - first_block * block_size
    found: KVArray = flat[:, begin : begin + len(positions)]
    return found


def _attend(
    q: FloatArray,
    keys: FloatArray,
    values: FloatArray,
    spec: AttentionSpec,
    masked: NDArray[np.bool_] | None = None,
) -> FloatArray:
    """Softmax attention of R query rows over n keys, in the type of the arguments.

    The G query heads that share a key/value head are rows of one product: nothing is repeated.

    Args:
        q: [R, H d].
        keys: [K, n, d].
        values: [K, n, d].
        spec: scale, softcap and sinks.
        masked: [R, n], true where a row does not see a position.

    Returns:
        [R, H d].
    """
    num_rows, shared = len(q), spec.num_heads // spec.num_kv_heads
    heads = q.reshape(num_rows, spec.num_kv_heads, shared, spec.head_dim)
    scaled = heads.transpose(1, 0, 2, 3) * q.dtype.type(spec.scale)
    grouped = scaled.reshape(spec.num_kv_heads, -1, spec.head_dim)
    scores: FloatArray = np.matmul(grouped, keys.swapaxes(1, 2))  # [K, R G, n]
    if spec.softcap is not None:
        scores = soft_cap(scores, spec.softcap)
    if masked is not None:
        by_row = scores.reshape(spec.num_kv_heads, num_rows, shared, -1)
        np.copyto(by_row, -np.inf, where=masked[None, :, None, :])
    total = _exponentiate(scores, spec)
    out: FloatArray = np.matmul(scores, values)  # [K, R G, d]
    by_head = (out / total).reshape(spec.num_kv_heads, num_rows, shared, spec.head_dim)
    return by_head.transpose(1, 0, 2, 3).reshape(num_rows, -1)


def _exponentiate(scores: FloatArray, spec: AttentionSpec) -> FloatArray:
    """Overwrite scores [K, R G, n] by exp(score - largest); return their sums [K, R G, 1].

    Sinks take part in the largest and the sum. Dividing the attended values by the sums instead
    of the scores saves a pass over the scores.
    """
    largest = scores.max(axis=-1, keepdims=True)
    sinks = None
    if spec.sinks is not None:
        per_head = np.array(spec.sinks, dtype=scores.dtype).reshape(spec.num_kv_heads, 1, -1)
        num_rows = scores.shape[1] // per_head.shape[2]
        sinks = np.tile(per_head, (1, num_rows, 1)).reshape(*scores.shape[:2], 1)
        largest = np.maximum(largest, sinks)
    scores -= largest
    np.exp(scores, out=scores)
    total: FloatArray = scores.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total += np.exp(sinks - largest)
    return total


def soft_cap(x: FloatArray, cap: float) -> FloatArray:
    """cap x tanh(x / cap), in the type of x."""
    factor = x.dtype.type(cap)
    capped: FloatArray = np.tanh(x / factor) * factor
    return capped
