"""A true float32 fused multiply-add in NumPy, which has none.

Not here: who needs it (int8). Speed is that of a dozen passes over float64 arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array

FloatArray = NDArray[np.float32] | np.float32


def fma32(a: FloatArray, b: FloatArray, c: FloatArray) -> Float32Array:
    """a x b + c, rounded once to float32 (half to even), subnormal results included.

    The product of two float32 is exact in float64 (48 of 53 bits). The sum is rounded to odd, by
    the error that TwoSum gives (Knuth, TAOCP 2, 4.2.2), so that rounding it once more to float32
    gives what rounding the exact sum would (Boldo and Melquiond, "Emulation of FMA and correctly
    rounded sums", IEEE Trans. Computers 57(4), 2008).

    Args:
        a: float32, any shape that broadcasts with the others.
        b: likewise.
        c: likewise.

    Returns:
        float32 of the common shape; infinities and NaN as IEEE 754 has them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        addend = np.asarray(c, dtype=np.float64)
        total = np.asarray(product + addend)
        # TwoSum: product + addend = total + error, exactly.
        virtual = total - product
        error = (product - (total - virtual)) + (addend - virtual)
        bits = total.view(np.int64)
        inexact_even = (error != 0) & ((bits & 1) == 0) & np.isfinite(total)
        # One step in the bits is one step away from zero, or towards it.
        step = np.where((error > 0) == (total > 0), 1, -1)
        odd = np.where(inexact_even, bits + step, bits).view(np.float64)
        return odd.astype(np.float32)
