from __future__ import annotations

import pytest

from firstword.bench.cases import Case, Grid
from firstword.errors import ConfigError


def test_a_grid_is_all_combinations_and_the_chat() -> None:
    cases = Grid([128, 512], [64], depths=[0, 4096], batches=[1, 16], chat=True).cases()
    assert len(cases) == 2 * 2 * 2 + 2 * 2 + 1
    assert Case("prefill", 512, 4096, 16) in cases
    assert cases[-1] == Case("chat", 500, 100)


def test_labels_say_what_is_timed_and_fit_their_column() -> None:
    assert Case("prefill", 128).label == "prefill 128"
    assert Case("decode", 64, 4096, 16).label == "decode 64 after 4096 x16"
    assert Case("chat", 500, 100).label == "chat 100+500"
    assert len(Case("prefill", 8192, 32768, 16).label) <= 28


@pytest.mark.parametrize("sizes", [(0, 0, 1), (1, -1, 1), (1, 0, 0)])
def test_sizes_that_cannot_be_are_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ConfigError, match="give at least"):
        Case("prefill", *sizes)


def test_a_grid_without_cases_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to measure"):
        Grid([], []).cases()
