from __future__ import annotations

import numpy as np
import pytest

from firstword.batch import Float32Array
from firstword.errors import ConfigError
from firstword.ops import self_check
from firstword.ops.native import usable_isas
from firstword.ops.self_check import same_as_generic
from firstword.quant import dequantize


def test_every_usable_instruction_set_passes() -> None:
    assert same_as_generic()
    for isa in usable_isas():
        assert same_as_generic(isa)


def test_one_wrong_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = self_check._compute

    def wrong(isa: str) -> Float32Array:
        out = right(isa).copy()
        if isa != "generic":
            out.view(np.uint32)[3, 5] ^= 1
        return out

    monkeypatch.setattr(self_check, "_compute", wrong)
    assert not same_as_generic()


def test_the_check_computes_something() -> None:
    """Of ordinary size, different everywhere, and what the int8 oracle says."""
    out = self_check._compute("generic")
    weight = self_check._weight()
    exact = (
        self_check._inputs().astype(np.float64)
        @ dequantize(weight).reshape(48, 256).astype(np.float64).T
    )
    assert np.abs(out - exact).max() < 0.02 * np.abs(exact).max()
    assert len(np.unique(out)) > 300


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ConfigError, match="sse9"):
        same_as_generic("sse9")
