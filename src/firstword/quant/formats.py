"""What the bits of each quantized block mean, as integers and scales; nothing is multiplied here.

The layouts are those of ggml's `ggml-common.h` and `dequantize_row_*` in `ggml-quants.c`. In all
of them a value is  d * scale * q - dmin * min  where q, scale and min are small integers and d and
dmin are half-precision numbers of the block; in MXFP4 d is a power of two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstword.quant.tensor import GGMLType

Bytes = NDArray[np.uint8]
Int8 = NDArray[np.int8]
Float32 = NDArray[np.float32]


@dataclass(frozen=True)
class Unpacked:
    """N blocks of B values in G scale groups, as integers.

    Args:
        q: the quants, [N, B].
        d: scale of a block, [N, 1].
        scales: integer scale of each group, [N, G]; None: one group whose scale is 1.
        dmin: scale of the mins, [N, 1]; None: no mins.
        mins: integer min of each group, [N, G]; None: one group whose min is 1.
    """

    q: Int8
    d: Float32
    scales: Int8 | None = None
    dmin: Float32 | None = None
    mins: Int8 | None = None


def _half(blocks: Bytes, start: int) -> Float32:
    """The half-precision number at byte `start` of each block, [N, 1]."""
    two = np.ascontiguousarray(blocks[:, start : start + 2])
    # A signalling NaN in a hostile file sets the invalid flag when widened: not our concern.
    with np.errstate(invalid="ignore"):
        return two.view("<f2").astype(np.float32)


# What the codes of IQ4_NL and IQ4_XS stand for, and twice what those of MXFP4 do (E2M1 of the OCP
# Microscaling specification).
_NONLINEAR = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.int8
)
_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.int8)


def _bits(packed: Bytes, run: int, width: int) -> Bytes:
    """Fields of `width` bits, from the low end of each byte, laid out in runs of `run` bytes.

    [N, M] bytes become [N, M * 8 / width] fields: the lowest field of each byte of the first run,
    then the next field of the same bytes, and so on; then the second run.
    """
    shifts = np.arange(0, 8, width, dtype=np.uint8).reshape(1, 1, -1, 1)
    fields = packed.reshape(len(packed), -1, 1, run) >> shifts
    fields &= np.uint8((1 << width) - 1)
    return fields.reshape(len(packed), -1)


def _q4_0(blocks: Bytes) -> Unpacked:
    return Unpacked(_bits(blocks[:, 2:], 16, 4).view(np.int8) - np.int8(8), _half(blocks, 0))


def _q4_1(blocks: Bytes) -> Unpacked:
    q = _bits(blocks[:, 4:], 16, 4).view(np.int8)
    return Unpacked(q, _half(blocks, 0), dmin=-_half(blocks, 2))


def _fifth_bit(blocks: Bytes, start: int) -> Bytes:
    """Bit 4 of each of 32 values, from 4 bytes at `start`, value 0 first, [N, 32]."""
    bits = np.unpackbits(blocks[:, start : start + 4], axis=-1, bitorder="little")
    return bits << np.uint8(4)


def _q5_0(blocks: Bytes) -> Unpacked:
    q = _bits(blocks[:, 6:], 16, 4) | _fifth_bit(blocks, 2)
    return Unpacked(q.view(np.int8) - np.int8(16), _half(blocks, 0))


def _q5_1(blocks: Bytes) -> Unpacked:
    q = _bits(blocks[:, 8:], 16, 4) | _fifth_bit(blocks, 4)
    return Unpacked(q.view(np.int8), _half(blocks, 0), dmin=-_half(blocks, 2))


def _q8_0(blocks: Bytes) -> Unpacked:
    return Unpacked(blocks[:, 2:].view(np.int8), _half(blocks, 0))


def _q2_k(blocks: Bytes) -> Unpacked:
    packed = blocks[:, :16]
    return Unpacked(
        q=_bits(blocks[:, 16:80], 32, 2).view(np.int8),
        d=_half(blocks, 80),
        scales=(packed & np.uint8(15)).view(np.int8),
        dmin=_half(blocks, 82),
        mins=(packed >> np.uint8(4)).view(np.int8),
    )


def _q3_k(blocks: Bytes) -> Unpacked:
    # A value is its two low bits, less 4 where its bit in the mask is 0.
    low = _bits(blocks[:, 32:96], 32, 2)
    mask = _bits(blocks[:, :32], 32, 1)
    q = (low | (mask << np.uint8(2))).view(np.int8) - np.int8(4)
    # Sixteen scales of 6 bits: eight bytes hold the low nibbles, four the high pairs of bits.
    scales = _bits(blocks[:, 96:104], 8, 4) | (_bits(blocks[:, 104:108], 4, 2) << np.uint8(4))
    return Unpacked(q, _half(blocks, 108), scales.view(np.int8) - np.int8(32))


def _scales_and_mins(packed: Bytes) -> tuple[Int8, Int8]:
    """Eight scales and eight mins of 6 bits from 12 bytes, [N, 8] each (Q4_K and Q5_K).

    Bytes 0-3 and 4-7 hold scales and mins 0-3 in their low 6 bits, and above those the top two
    bits of scales and mins 4-7, whose low nibbles share bytes 8-11.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    top = np.uint8(0x30)
    six = np.uint8(0x3F)
    high_scales = (third & np.uint8(15)) | ((first >> np.uint8(2)) & top)
    high_mins = (third >> np.uint8(4)) | ((second >> np.uint8(2)) & top)
    scales = np.concatenate([first & six, high_scales], axis=1)
    mins = np.concatenate([second & six, high_mins], axis=1)
    return scales.view(np.int8), mins.view(np.int8)


def _q4_k(blocks: Bytes) -> Unpacked:
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    q = _bits(blocks[:, 16:], 32, 4).view(np.int8)
    return Unpacked(q, _half(blocks, 0), scales, _half(blocks, 2), mins)


def _q5_k(blocks: Bytes) -> Unpacked:
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    q = _bits(blocks[:, 48:], 32, 4) | (_bits(blocks[:, 16:48], 32, 1) << np.uint8(4))
    return Unpacked(q.view(np.int8), _half(blocks, 0), scales, _half(blocks, 2), mins)


def _q6_k(blocks: Bytes) -> Unpacked:
    q = _bits(blocks[:, :128], 64, 4) | (_bits(blocks[:, 128:192], 32, 2) << np.uint8(4))
    scales = blocks[:, 192:208].view(np.int8)
    return Unpacked(q.view(np.int8) - np.int8(32), _half(blocks, 208), scales)


def _iq4_nl(blocks: Bytes) -> Unpacked:
    return Unpacked(_NONLINEAR[_bits(blocks[:, 2:], 16, 4)], _half(blocks, 0))


def _iq4_xs(blocks: Bytes) -> Unpacked:
    # Eight scales of 6 bits: two bytes hold the high pairs of bits, four the low nibbles.
    scales = _bits(blocks[:, 4:8], 1, 4) | (_bits(blocks[:, 2:4], 1, 2) << np.uint8(4))
    q = _NONLINEAR[_bits(blocks[:, 8:], 16, 4)]
    return Unpacked(q, _half(blocks, 0), scales.view(np.int8) - np.int8(32))


def _mxfp4(blocks: Bytes) -> Unpacked:
    # Half of 2^(e - 127), for the codes are doubled; subnormal where e is 0 or 1.
    e = blocks[:, :1].astype(np.uint32)
    subnormal = np.uint32(0x00200000) << np.minimum(e, 1)
    bits = np.where(e < 2, subnormal, (e - np.uint32(1)) << np.uint32(23))
    return Unpacked(_E2M1[_bits(blocks[:, 1:], 16, 4)], bits.view(np.float32))


UNPACK: dict[GGMLType, Callable[[Bytes], Unpacked]] = {
    GGMLType.Q4_0: _q4_0,
    GGMLType.Q4_1: _q4_1,
    GGMLType.Q5_0: _q5_0,
    GGMLType.Q5_1: _q5_1,
    GGMLType.Q8_0: _q8_0,
    GGMLType.Q2_K: _q2_k,
    GGMLType.Q3_K: _q3_k,
    GGMLType.Q4_K: _q4_k,
    GGMLType.Q5_K: _q5_k,
    GGMLType.Q6_K: _q6_k,
    GGMLType.IQ4_NL: _iq4_nl,
    GGMLType.IQ4_XS: _iq4_xs,
    GGMLType.MXFP4: _mxfp4,
}
"""Blocks [N, bytes of a block] to integers, for each type built."""
