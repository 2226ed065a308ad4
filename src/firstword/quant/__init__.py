"""Weights as they lie in a file: ggml types, raw tensors, and what their bits mean.

Not here: where files are (weights) and how to multiply with them (ops).
"""

from __future__ import annotations

from firstword.quant.dequantize import (
    DEQUANTIZABLE,
    INTEGER_TYPES,
    IntegerBlocks,
    dequantize,
    dequantize_rows,
    integer_blocks,
)
from firstword.quant.tensor import GGMLType, RawTensor

__all__ = [
    "DEQUANTIZABLE",
    "INTEGER_TYPES",
    "GGMLType",
    "IntegerBlocks",
    "RawTensor",
    "dequantize",
    "dequantize_rows",
    "integer_blocks",
]
