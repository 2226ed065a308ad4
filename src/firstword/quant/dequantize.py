"""Raw tensors to float32, and to the integers that exact integer sums are made of.

Not here: the bit layouts (formats) and any product of matrices (ops).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firstword.quant.formats import UNPACK, Bytes, Float32, Int8, Unpacked
from firstword.quant.tensor import GGMLType, RawTensor

# Values unpacked at a time. It bounds the temporaries (under 1 MB) beside the result; the speed is
# the same, 0.1 s for 32 Mi values, anywhere from 2^15 to 2^20.
_CHUNK = 1 << 16


def _f32(data: Bytes) -> Float32:
    return data.view("<f4").astype(np.float32)


def _f16(data: Bytes) -> Float32:
    with np.errstate(invalid="ignore"):  # widening a signalling NaN
        return data.view("<f2").astype(np.float32)


def _bf16(data: Bytes) -> Float32:
    return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


_FLOATS: dict[GGMLType, Callable[[Bytes], Float32]] = {
    GGMLType.F32: _f32,
    GGMLType.F16: _f16,
    GGMLType.BF16: _bf16,
}
INTEGER_TYPES = frozenset(UNPACK)
"""Types that `integer_blocks` takes."""
DEQUANTIZABLE = frozenset(_FLOATS) | INTEGER_TYPES
"""Types that `dequantize` takes."""


def dequantize(tensor: RawTensor) -> NDArray[np.float32]:
    """All values of a tensor, rounded as ggml's `dequantize_row_*` rounds them.

    Args:
        tensor: of a type in DEQUANTIZABLE.

    Returns:
        A fresh array of the tensor's shape.

    Raises:
        ValueError: the type is not built.
    """
    return _dequantize_bytes(tensor.data, tensor.type).reshape(tensor.shape)


def dequantize_rows(tensor: RawTensor, rows: ArrayLike) -> NDArray[np.float32]:
    """Some rows of a matrix, such as the embeddings of the tokens of a batch.

    Args:
        tensor: a matrix [out, in] of a type in DEQUANTIZABLE.
        rows: indices [T], each in [0, out).

    Returns:
        Values [T, in].

    Raises:
        ValueError: the type is not built.
        IndexError: an index is outside the matrix.
    """
    index = np.asarray(rows, dtype=np.intp)
    if index.size and index.min() < 0:
        raise IndexError(f"row {index.min()} of {tensor.name!r}: rows are counted from 0")
    picked = tensor.rows[index]  # [T, bytes of a row]
    values = _dequantize_bytes(picked.reshape(-1), tensor.type)
    return values.reshape(len(picked), tensor.shape[-1])


def _dequantize_bytes(data: Bytes, ggml_type: GGMLType) -> Float32:
    if ggml_type in _FLOATS:
        return _FLOATS[ggml_type](np.ascontiguousarray(data))
    if ggml_type not in UNPACK:
        raise ValueError(f"dequantization of {ggml_type.name} is not built")
    unpack = UNPACK[ggml_type]
    blocks = data.reshape(-1, ggml_type.type_size)
    out = np.empty((len(blocks), ggml_type.block_size), dtype=np.float32)
    step = max(1, _CHUNK // ggml_type.block_size)
    with np.errstate(over="ignore", invalid="ignore"):  # scales of a hostile file may be inf, NaN
        for start in range(0, len(blocks), step):
            _recombine(unpack(blocks[start : start + step]), out[start : start + step])
    return out.reshape(-1)


def _recombine(block: Unpacked, out: Float32) -> None:
    """Write (d * scale) * q - (dmin * min) to `out` [N, B], rounding after each operation."""
    scale = block.d if block.scales is None else block.d * block.scales  # [N, G]
    grouped = (len(out), scale.shape[1], -1)
    values = out.reshape(grouped)
    np.multiply(scale[:, :, None], block.q.reshape(grouped), out=values, dtype=np.float32)
    if block.dmin is not None:
        values -= (block.dmin if block.mins is None else block.dmin * block.mins)[:, :, None]


@dataclass(frozen=True)
class IntegerBlocks:
    """A quantized matrix [out, in] as integers: the other side of int8 activations.

    In real arithmetic, with k a column, g = k // group_size and b = k // block_size, a weight is
    exactly  d[b] * scales[g] * quants[k] - dmin[b] * mins[g].

    Args:
        quants: [out, in], signed where the format's values are, else from 0.
        scales: [out, in / group_size]; all ones in the formats with 32 values to a block.
        d: [out, in / block_size].
        mins: [out, in / group_size]; None in formats without mins.
        dmin: [out, in / block_size]; None in formats without mins.
    """

    quants: Int8
    scales: Int8
    d: Float32
    mins: Int8 | None
    dmin: Float32 | None

    @property
    def group_size(self) -> int:
        """Values that share an integer scale: 16 or 32."""
        return int(self.quants.shape[1] // self.scales.shape[1])

    @property
    def block_size(self) -> int:
        """Values that share a floating-point scale: 32 or 256."""
        return int(self.quants.shape[1] // self.d.shape[1])


def integer_blocks(tensor: RawTensor) -> IntegerBlocks:
    """The integers and scales of a quantized matrix.

    Args:
        tensor: a matrix [out, in] of a type in INTEGER_TYPES.

    Raises:
        ValueError: the type is not built, or not made of integers.
    """
    if tensor.type not in UNPACK:
        raise ValueError(f"{tensor.type.name} has no integer blocks")
    blocks = tensor.data.reshape(-1, tensor.type.type_size)
    unpacked = UNPACK[tensor.type](blocks)
    out = tensor.shape[0]
    ones = np.ones((len(blocks), 1), dtype=np.int8)
    scales = ones if unpacked.scales is None else unpacked.scales
    mins = dmin = None
    if unpacked.dmin is not None:
        mins = (ones if unpacked.mins is None else unpacked.mins).reshape(out, -1)
        dmin = unpacked.dmin.reshape(out, -1)
    return IntegerBlocks(
        quants=unpacked.q.reshape(out, -1),
        scales=scales.reshape(out, -1),
        d=unpacked.d.reshape(out, -1),
        mins=mins,
        dmin=dmin,
    )
