from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFReader

from benchmarks.quality.control import TENSOR, write_control
from tests.weights.tiny_gguf import write_tiny_llama


def test_one_vector_is_changed_by_next_to_nothing(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf")
    before, after = GGUFReader(path), GGUFReader(write_control(path, tmp_path))
    for old, new in zip(before.tensors, after.tensors, strict=True):
        same = np.array_equal(old.data, new.data)
        assert same != (old.name == TENSOR)
        if not same:
            np.testing.assert_allclose(new.data, old.data, rtol=1.2e-5)
