from __future__ import annotations

import pytest

from firstword.kvcache.kv_types import MEAN_KL_Q8, cost_in_words


def test_only_a_smaller_type_costs_anything() -> None:
    words = cost_in_words("q8")
    assert words is not None
    for name, kl in MEAN_KL_Q8.items():
        assert f"{kl:.4f} for {name}" in words
    assert max(MEAN_KL_Q8.values()) <= 0.003


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_others_have_no_cost(dtype: str) -> None:
    assert cost_in_words(dtype) is None
