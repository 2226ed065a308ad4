"""Linear layers over 8-bit activations: the canonical arithmetic, and the oracle of fast kernels.

Not here: the bit layouts of weights (quant) and speed. Any backend that follows this page gives
the same bits, whatever its tiles, threads and batch:

**Activations** are quantized row by row, in runs of 32 values (A32) for weights with 32 values to
a block and of 256 values (A256) for weights with 256. Per run, in float32:

    scale = max |x| / 127
    code  = x / scale, rounded half to even, clamped to -127 .. 127

with IEEE division in both lines. A run whose scale is 0 has codes 0. A run that holds an infinity
or NaN has codes 0 and the scale NaN, so that the output shows it.

**Quantized weights.** A weight is d[b] q[k] s[g] - dmin[b] m[g] for column k, scale group g and
block b (`firstword.quant.IntegerBlocks`); a is a code and da[b] the scale of the run that covers
block b. Two integers are exact, whatever the order of their sums:

    isum[b] = sum over g in b of s[g] x (sum over k in g of q[k] a[k])
    msum[b] = sum over g in b of m[g] x (sum over k in g of a[k])

Then, from acc = +0 and with blocks in increasing b, where float32(i) rounds half to even, each
product of scales is rounded to float32 and fma rounds once:

    acc = fma(d[b] x da[b], float32(isum[b]), acc)
    acc = fma(-(dmin[b] x da[b]), float32(msum[b]), acc)      only for formats with mins

In Q4_1 and Q5_1 m[g] is 1 and -dmin[b] is the m of the format.

**Float weights** (F32, and F16 and BF16 widened) take the activations as they are. Columns are cut
into chunks of 256; from acc = +0, acc = fma(x[k], w[k], acc) for increasing k within a chunk;
from total = +0, total = total + acc in float32 for increasing chunks.

A bias is added last, in float32.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array
from firstword.ops.fma import fma32
from firstword.quant import IntegerBlocks

_CODE_MAX = np.float32(127.0)
_CHUNK = 256
# Outputs computed at a time: a dozen float64 temporaries of this many values stay below 100 MB.
_MAX_OUTPUTS = 1 << 20


def quantize_activations(x: Float32Array, run: int) -> tuple[NDArray[np.int8], Float32Array]:
    """8-bit codes of activations, and the scale of each run of `run` values.

    Args:
        x: [T, D], D a multiple of `run`.
        run: 32 (A32) or 256 (A256).

    Returns:
        Codes [T, D] in -127 .. 127 and scales [T, D / run].
    """
    runs = x.reshape(len(x), -1, run)
    scales = np.abs(runs).max(axis=-1) / _CODE_MAX  # [T, D / run]
    usable = np.isfinite(scales) & (scales > 0)
    ratios = np.where(usable[..., None], runs, 0) / np.where(usable, scales, 1)[..., None]
    codes = np.clip(np.rint(ratios), -_CODE_MAX, _CODE_MAX).astype(np.int8)
    scales = np.where(np.isfinite(scales), scales, np.float32(np.nan))
    return codes.reshape(x.shape), scales


def int8_linear(x: Float32Array, weight: IntegerBlocks | Float32Array) -> Float32Array:
    """x [T, D] times the transpose of a weight [O, D] -> [T, O], as the module defines it."""
    num_outputs = len(weight.quants) if isinstance(weight, IntegerBlocks) else len(weight)
    out = np.empty((len(x), num_outputs), dtype=np.float32)
    tile = max(1, _MAX_OUTPUTS // num_outputs)
    for start in range(0, len(x), tile):
        rows = x[start : start + tile]
        if isinstance(weight, IntegerBlocks):
            out[start : start + tile] = _quantized_linear(rows, weight)
        else:
            out[start : start + tile] = _float_linear(rows, weight)
    return out


def _quantized_linear(x: Float32Array, weight: IntegerBlocks) -> Float32Array:
    block_size = weight.block_size
    codes, scales = quantize_activations(x, block_size)
    acc = np.zeros((len(x), len(weight.quants)), dtype=np.float32)
    for block in range(weight.d.shape[1]):
        columns = slice(block * block_size, (block + 1) * block_size)
        isum, msum = _block_sums(codes[:, columns], weight, block)
        da = scales[:, block, None]  # [T, 1]
        acc = fma32(weight.d[:, block] * da, isum, acc)
        if weight.dmin is not None and msum is not None:
            acc = fma32(-(weight.dmin[:, block] * da), msum, acc)
    return acc


def _block_sums(
    codes: NDArray[np.int8], weight: IntegerBlocks, block: int
) -> tuple[Float32Array, Float32Array | None]:
    """isum and msum of one block for every row and output, [T, O], as float32.

    A sum over a scale group is below 32 x 128 x 127 < 2^24 and so exact in float32 in any order; a
    sum over a block is below 2^31 and so exact in float64.
    """
    size = weight.group_size
    groups = weight.block_size // size
    first = block * groups
    activations = codes.astype(np.float32).reshape(len(codes), groups, size)
    quants = weight.quants[:, first * size : (first + groups) * size].astype(np.float32)
    by_group = quants.reshape(-1, groups, size)
    sums = np.matmul(activations.transpose(1, 0, 2), by_group.transpose(1, 2, 0))  # [G, T, O]
    factors = weight.scales[:, first : first + groups].T.astype(np.float64)  # [G, O]
    isum = (sums * factors[:, None, :]).sum(axis=0).astype(np.float32)
    if weight.mins is None:
        return isum, None
    totals = activations.sum(axis=-1).astype(np.float64)  # [T, G]
    mins = weight.mins[:, first : first + groups].astype(np.float64)  # [O, G]
    return isum, (totals @ mins.T).astype(np.float32)


def _float_linear(x: Float32Array, weight: Float32Array) -> Float32Array:
    total = np.zeros((len(x), len(weight)), dtype=np.float32)
    for start in range(0, weight.shape[1], _CHUNK):
        acc = np.zeros_like(total)
        for k in range(start, min(start + _CHUNK, weight.shape[1])):
            acc = fma32(x[:, k, None], weight[:, k], acc)
        total = total + acc
    return total
