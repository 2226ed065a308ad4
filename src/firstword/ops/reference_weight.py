"""Weights of the reference backend: tensors of a file, unpacked when they are first multiplied.

Not here: the products themselves (reference_linear, int8).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array, Int32Array
from firstword.ops.protocol import WeightRole
from firstword.ops.weight_types import check_built
from firstword.quant import (
    INTEGER_TYPES,
    IntegerBlocks,
    RawTensor,
    dequantize,
    dequantize_rows,
    integer_blocks,
)


class ReferenceWeight:
    """One weight, stacked along outputs when it is made of several tensors.

    It serves any role, so that a tied embedding is one weight with one dense copy. Each form is
    made when it is first asked for and then kept.

    Args:
        tensors: matrices [O_i, D] that share D, or vectors [O_i].

    Raises:
        UnsupportedModelError: the type of a tensor is not built.
    """

    def __init__(self, tensors: Sequence[RawTensor]) -> None:
        for tensor in tensors:
            check_built(tensor)
        assert len({tensor.shape[1:] for tensor in tensors}) == 1, "stacked tensors differ in D"
        self._tensors = tuple(tensors)

    @property
    def shape(self) -> tuple[int, ...]:
        """[O, D] of a matrix, [O] of a vector."""
        return (sum(t.shape[0] for t in self._tensors), *self._tensors[0].shape[1:])

    @cached_property
    def dense(self) -> Float32Array:
        """All values, [O, D] or [O]."""
        if len(self._tensors) == 1:
            return dequantize(self._tensors[0])
        out = np.empty(self.shape, dtype=np.float32)
        start = 0
        for tensor in self._tensors:
            out[start : start + tensor.shape[0]] = dequantize(tensor)
            start += tensor.shape[0]
        return out

    @cached_property
    def integers(self) -> tuple[IntegerBlocks | Float32Array, ...]:
        """One entry per tensor: its integers, or its values [O_i, D] where it holds floats."""
        return tuple(
            integer_blocks(t) if t.type in INTEGER_TYPES else dequantize(t) for t in self._tensors
        )

    def rows(self, indices: Int32Array) -> Float32Array:
        """Rows of the matrix -> [T, D], from the file's own bytes."""
        assert len(self._tensors) == 1, "only a weight of one tensor serves as an embedding"
        rows: NDArray[np.float32] = dequantize_rows(self._tensors[0], indices)
        return rows


def prepare_weight(role: WeightRole, tensors: Sequence[RawTensor]) -> ReferenceWeight:
    """Check the tensors and make a weight; a vector is unpacked at once.

    Raises:
        UnsupportedModelError: the type of a tensor is not built.
    """
    weight = ReferenceWeight(tensors)
    if role == "vector":
        _ = weight.dense
    return weight
