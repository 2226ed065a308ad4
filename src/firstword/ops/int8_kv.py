"""Keys and values in 8 bits ("q8"): the canonical arithmetic, and the oracle of fast kernels.

Not here: where they are stored (kvcache.storage) and attention itself (reference_attention). Any
backend that follows this page stores the same bits.

**Codes.** The values of one token in one head share a scale:

    scale = max |x| / 127, rounded half to even to float16, at most 65504
    code  = x / scale, rounded half to even, clamped to -127 .. 127

with float32 divisions. A scale of 0 has codes 0. Before that, x is clamped to +-65504, as in
float16; where any of it is NaN, codes are 0 and the scale is NaN.

**Values** are stored so. Attention multiplies their scale into the weight of their token:

    acc[d] = fma(p[t] x scale[t], code[t][d], acc[d])      for increasing t

**Keys** are rotated first. A few of a key's values are ten times as large as the rest, the same
ones for every token; sharing a scale with them leaves the others four bits or so. A Hadamard
matrix spreads every value over all of them and leaves dot products as they are, but for a factor
(Ashkboos and others, "QuaRot", 2024, arXiv 2404.00456). Per run of n values, n the largest power
of two that divides head_dim, these sums and differences are taken log2 n times, which makes the
factor n:

    y[i] = x[2 i] + x[2 i + 1],  y[n / 2 + i] = x[2 i] - x[2 i + 1]      for i < n / 2

**Queries** are rotated alike and quantized, per row and head, with a scale that stays float32 (and
without clamping: an infinity or NaN gives codes 0 and the scale NaN). With integer dot products,
exact in any order,

    score[t] = ((attention scale / n x query scale) x key scale[t]) x float32(codes of q . k[t])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array

_CODE_MAX = np.float32(127.0)
_FLOAT16_MAX = np.float32(65504.0)


def rotation_size(head_dim: int) -> int:
    """Values that are rotated together: the largest power of two that divides head_dim."""
    return head_dim & -head_dim


def rotate(x: Float32Array) -> Float32Array:
    """x [..., d] by the module's sums and differences; dot products grow by `rotation_size(d)`."""
    size = rotation_size(x.shape[-1])
    runs = x.reshape(*x.shape[:-1], -1, size)
    for _ in range(size.bit_length() - 1):
        first, second = runs[..., 0::2], runs[..., 1::2]
        runs = np.concatenate([first + second, first - second], axis=-1)
    return runs.reshape(x.shape)


def quantize_values(x: Float32Array) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Codes [..., d] and scales [...] of heads' values [..., d]."""
    return _quantize_heads(_clamp(x))


def quantize_keys(x: Float32Array) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Codes [..., d] and scales [...] of rotated keys [..., d]."""
    return _quantize_heads(rotate(_clamp(x)))


def round_queries(x: Float32Array) -> Float32Array:
    """What queries [..., d] are multiplied with rotated keys as: code x scale / rotation size.

    Each is rounded to float32; the kernels multiply by the scale once per dot product instead.
    """
    rotated = rotate(x)
    scales = np.abs(rotated).max(axis=-1) / _CODE_MAX
    codes, scales = _codes(rotated, np.where(np.isfinite(scales), scales, np.float32(np.nan)))
    return codes * (scales[..., None] / np.float32(rotation_size(x.shape[-1])))


def _clamp(x: Float32Array) -> Float32Array:
    clamped: Float32Array = np.clip(x, -_FLOAT16_MAX, _FLOAT16_MAX)  # NaN stays
    return clamped


def _quantize_heads(x: Float32Array) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    scales = np.minimum(np.abs(x).max(axis=-1) / _CODE_MAX, _FLOAT16_MAX).astype(np.float16)
    codes, _ = _codes(x, scales.astype(np.float32))
    return codes, scales


def _codes(x: Float32Array, scales: Float32Array) -> tuple[NDArray[np.int8], Float32Array]:
    """Codes of x [..., d], which are 0 where the scale is 0 or NaN, and the scales [...]."""
    usable = (scales > 0)[..., None]
    ratios = np.where(usable, x, 0) / np.where(usable, scales[..., None], 1)
    codes = np.clip(np.rint(ratios), -_CODE_MAX, _CODE_MAX).astype(np.int8)
    return codes, scales
