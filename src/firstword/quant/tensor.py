"""The ggml types with their block sizes, and a tensor as raw bytes. No arithmetic here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import prod

import numpy as np
from numpy.typing import NDArray


class GGMLType(IntEnum):
    """Every type id that ggml has given out, those it has withdrawn included."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q4_2 = 4
    Q4_3 = 5
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    Q4_0_4_4 = 31
    Q4_0_4_8 = 32
    Q4_0_8_8 = 33
    TQ1_0 = 34
    TQ2_0 = 35
    IQ4_NL_4_4 = 36
    IQ4_NL_4_8 = 37
    IQ4_NL_8_8 = 38
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41

    @property
    def has_known_size(self) -> bool:
        """Whether block and type size are known; they are not for withdrawn and internal types."""
        return self in _SIZES

    @property
    def block_size(self) -> int:
        """Values in one block.

        Raises:
            ValueError: the layout of the type is not known.
        """
        return _sizes(self)[0]

    @property
    def type_size(self) -> int:
        """Bytes of one block.

        Raises:
            ValueError: the layout of the type is not known.
        """
        return _sizes(self)[1]


# (values in a block, bytes of a block), as ggml-common.h defines the structs.
_SIZES: dict[GGMLType, tuple[int, int]] = {
    GGMLType.F32: (1, 4),
    GGMLType.F16: (1, 2),
    GGMLType.BF16: (1, 2),
    GGMLType.F64: (1, 8),
    GGMLType.I8: (1, 1),
    GGMLType.I16: (1, 2),
    GGMLType.I32: (1, 4),
    GGMLType.I64: (1, 8),
    GGMLType.Q4_0: (32, 18),
    GGMLType.Q4_1: (32, 20),
    GGMLType.Q5_0: (32, 22),
    GGMLType.Q5_1: (32, 24),
    GGMLType.Q8_0: (32, 34),
    GGMLType.Q2_K: (256, 84),
    GGMLType.Q3_K: (256, 110),
    GGMLType.Q4_K: (256, 144),
    GGMLType.Q5_K: (256, 176),
    GGMLType.Q6_K: (256, 210),
    GGMLType.Q8_K: (256, 292),
    GGMLType.IQ1_S: (256, 50),
    GGMLType.IQ1_M: (256, 56),
    GGMLType.IQ2_XXS: (256, 66),
    GGMLType.IQ2_XS: (256, 74),
    GGMLType.IQ2_S: (256, 82),
    GGMLType.IQ3_XXS: (256, 98),
    GGMLType.IQ3_S: (256, 110),
    GGMLType.IQ4_NL: (32, 18),
    GGMLType.IQ4_XS: (256, 136),
    GGMLType.TQ1_0: (256, 54),
    GGMLType.TQ2_0: (256, 66),
    GGMLType.MXFP4: (32, 17),
    GGMLType.NVFP4: (64, 36),
    GGMLType.Q1_0: (128, 18),
}


def _sizes(ggml_type: GGMLType) -> tuple[int, int]:
    if ggml_type not in _SIZES:
        raise ValueError(f"the block layout of {ggml_type.name} is not known")
    return _SIZES[ggml_type]


@dataclass(frozen=True)
class RawTensor:
    """A tensor as it lies in its file, with nothing unpacked.

    Args:
        name: name of the tensor.
        shape: in numpy order; a matrix is (out features, in features). Blocks run along the last.
        type: what the bytes mean.
        data: all bytes of the tensor, [nbytes]; a read-only view of the mapped file.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    data: NDArray[np.uint8]

    @property
    def nbytes(self) -> int:
        """Bytes that the tensor takes in its file."""
        return self.num_values // self.type.block_size * self.type.type_size

    @property
    def num_values(self) -> int:
        """Values in the tensor."""
        return prod(self.shape)

    @property
    def rows(self) -> NDArray[np.uint8]:
        """The bytes row by row, [values / last dimension, bytes of a row]; a view."""
        row_bytes = self.shape[-1] // self.type.block_size * self.type.type_size
        return self.data.reshape(-1, row_bytes)
