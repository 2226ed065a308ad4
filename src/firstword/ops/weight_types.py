"""Which types of weights are computed with, and what they take once they lie in panels.

Not here: the panels themselves, which csrc/fmt/panel.h defines.
"""

from __future__ import annotations

from firstword.errors import UnsupportedModelError
from firstword.quant import DEQUANTIZABLE, GGMLType, RawTensor

# Bytes of a block of one row, of the types that a panel keeps in another size than their file. The
# values of the IQ4 types and of MXFP4 are looked up in a table once, at load, and then take 8 bits.
_PANEL_SIZES = {
    GGMLType.Q3_K: 114,
    GGMLType.IQ4_NL: 34,
    GGMLType.IQ4_XS: 266,
    GGMLType.MXFP4: 36,
}


def check_built(tensor: RawTensor) -> None:
    """Refuse a tensor that no backend can compute with.

    Raises:
        UnsupportedModelError: the tensor's type is not built.
    """
    if tensor.type not in DEQUANTIZABLE:
        supported = " ".join(sorted(t.name for t in DEQUANTIZABLE))
        raise UnsupportedModelError(
            "model",
            f"tensor {tensor.name}",
            f"type {tensor.type.name} is not built: choose a file with {supported}",
        )


def memory_bytes(tensor: RawTensor) -> int:
    """Bytes that the compiled kernels keep a tensor in, and read when they multiply with it.

    Rows that fill the last panel up to 32 are not counted, nor is the widening of vectors to
    float32: together they are far below a hundredth of a model.

    Raises:
        ValueError: the size of the tensor's type is not known.
    """
    size = _PANEL_SIZES.get(tensor.type, tensor.type.type_size)
    return tensor.num_values // tensor.type.block_size * size
