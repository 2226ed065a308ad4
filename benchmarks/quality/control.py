"""A model that differs from another by next to nothing: what its answers differ by is rounding.

Not here: how answers are compared (kv).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from gguf import GGUFReader

TENSOR = "blk.0.attn_norm.weight"
RELATIVE_CHANGE = 1e-5


def write_control(path: Path, folder: Path) -> Path:
    """Copy a model file, every value of one vector in its first layer changed by 1e-5 of itself.

    Args:
        path: of the model.
        folder: where the copy goes.

    Raises:
        StopIteration: the file has no such vector.
    """
    copy = Path(shutil.copy(path, folder / "control.gguf"))
    reader = GGUFReader(copy, "r+")
    vector = next(tensor for tensor in reader.tensors if tensor.name == TENSOR).data
    signs = np.random.default_rng(0).choice((-1, 1), vector.shape)
    vector *= (1 + RELATIVE_CHANGE * signs).astype(np.float32)
    reader.data.flush()
    return copy
