"""Random weights in every ggml type: blocks of random bits whose scales make sense.

A kernel is as fast on them as on trained weights, and as right: nothing is infinite and the values
have the spread of published models. Not here: which tensor gets which type (make_model).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import gguf
import numpy as np
from gguf.quants import dequantize
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]
Type: TypeAlias = gguf.GGMLQuantizationType

_SCALES: dict[Type, tuple[int, ...]] = {
    Type.Q4_0: (0,),
    Type.Q4_1: (0, 2),
    Type.Q5_0: (0,),
    Type.Q5_1: (0, 2),
    Type.Q8_0: (0,),
    Type.Q2_K: (80, 82),
    Type.Q3_K: (108,),
    Type.Q4_K: (0, 2),
    Type.Q5_K: (0, 2),
    Type.Q6_K: (208,),
    Type.IQ4_NL: (0,),
    Type.IQ4_XS: (0,),
}
"""Byte positions of the half-precision numbers of a block: its scale, and that of its mins."""

_FLOATS = (Type.F32, Type.F16, Type.BF16)
SUPPORTED = (*_FLOATS, *_SCALES, Type.MXFP4)

_SPREAD = 0.15
"""Scales of blocks differ: the logarithm's standard deviation."""

_SAMPLE_BLOCKS = 4096


@dataclass(frozen=True)
class Calibration:
    """What scales give values of mean 0 and standard deviation 1.

    Args:
        scale: of a block.
        min_ratio: scale of the mins over that of the block; 0 where there are none.
    """

    scale: float
    min_ratio: float = 0.0


class RandomBlocks:
    """A source of random matrices.

    Args:
        seed: the same seed gives the same matrices, asked for in the same order.
    """

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.Generator(np.random.SFC64(seed))
        self._calibrations: dict[Type, Calibration] = {}

    def rows(self, num_rows: int, num_cols: int, ggml_type: Type, std: float) -> Bytes:
        """Rows of a matrix, as a file stores them.

        Args:
            num_rows: outputs.
            num_cols: inputs, a multiple of the type's block size.
            ggml_type: one of `SUPPORTED`.
            std: standard deviation of the values.

        Returns:
            [num_rows, bytes of a row].
        """
        if ggml_type in _FLOATS:
            return _as_bytes(self._normal(num_rows, num_cols, std), ggml_type)
        block_size, type_size = gguf.GGML_QUANT_SIZES[ggml_type]
        blocks = self._bits(num_rows * num_cols // block_size, type_size)
        self._set_scales(blocks, ggml_type, std)
        return blocks.reshape(num_rows, -1)

    def _normal(self, num_rows: int, num_cols: int, std: float) -> NDArray[np.float32]:
        values = self._rng.standard_normal((num_rows, num_cols), dtype=np.float32)
        values *= np.float32(std)
        return values

    def _bits(self, num_blocks: int, type_size: int) -> Bytes:
        words = self._rng.integers(0, 2**64, -(-num_blocks * type_size // 8), dtype=np.uint64)
        return words.view(np.uint8)[: num_blocks * type_size].reshape(num_blocks, type_size)

    def _set_scales(self, blocks: Bytes, ggml_type: Type, std: float) -> None:
        if ggml_type not in self._calibrations:
            self._calibrations[ggml_type] = self._calibrate(ggml_type)
        wanted = self._calibrations[ggml_type]
        spread = np.exp(_SPREAD * self._rng.standard_normal(len(blocks), dtype=np.float32))
        scales = np.float32(std * wanted.scale) * spread
        if ggml_type == Type.MXFP4:
            blocks[:, 0] = np.rint(np.log2(scales)).astype(np.int32) + 127
            return
        starts = _SCALES[ggml_type]
        if len(starts) == 1:
            # Quants from -8 to 7 have a mean below 0, which scales of both signs make up for.
            scales *= self._rng.choice(np.array([-1, 1], np.float32), len(scales))
        _put(blocks, starts[0], scales)
        for start in starts[1:]:
            _put(blocks, start, scales * np.float32(wanted.min_ratio))

    def _calibrate(self, ggml_type: Type) -> Calibration:
        """Measure, on a sample, the values that scales of 1 give."""
        blocks = self._bits(_SAMPLE_BLOCKS, gguf.GGML_QUANT_SIZES[ggml_type][1])
        if ggml_type == Type.MXFP4:
            blocks[:, 0] = 127
            return Calibration(1.0 / float(dequantize(blocks, ggml_type).std()))
        starts = _SCALES[ggml_type]
        for start in starts:
            _put(blocks, start, np.zeros(len(blocks), np.float32))
        parts = []
        for start in starts:
            _put(blocks, start, np.ones(len(blocks), np.float32))
            parts.append(dequantize(blocks, ggml_type).astype(np.float64))
            _put(blocks, start, np.zeros(len(blocks), np.float32))
        if len(parts) == 1:
            return Calibration(1.0 / float(parts[0].std()))
        min_ratio = -float(parts[0].mean() / parts[1].mean())
        return Calibration(1.0 / float((parts[0] + min_ratio * parts[1]).std()), min_ratio)


def type_named(name: str) -> Type:
    """The ggml type of that name."""
    return {member.name: member for member in Type}[name]


def row_bytes(num_cols: int, ggml_type: Type) -> int:
    """Bytes of one row of a matrix.

    Raises:
        ValueError: the row is no whole number of blocks.
    """
    block_size, type_size = gguf.GGML_QUANT_SIZES[ggml_type]
    if num_cols % block_size:
        raise ValueError(f"rows of {num_cols} values are no multiple of {block_size}")
    return int(num_cols // block_size * type_size)


def _put(blocks: Bytes, start: int, values: NDArray[np.float32]) -> None:
    blocks[:, start : start + 2] = values.astype("<f2").view(np.uint8).reshape(-1, 2)


def _as_bytes(values: NDArray[np.float32], ggml_type: Type) -> Bytes:
    if ggml_type == Type.BF16:
        # The upper half of a float32, rounded by adding half of what is cut off.
        bits = values.view(np.uint32)
        return ((bits + np.uint32(0x8000)) >> np.uint32(16)).astype("<u2").view(np.uint8)
    dtype = "<f2" if ggml_type == Type.F16 else "<f4"
    return values.astype(dtype).view(np.uint8)
