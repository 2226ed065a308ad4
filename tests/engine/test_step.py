"""The predicted cost of chunks."""

from __future__ import annotations

import pytest

from firstword.engine.step import StepTime


def test_cost_counts_tokens_and_the_positions_they_attend_to() -> None:
    cost = StepTime(ms_per_step=5, ms_per_token=2, ms_per_token_context=0.5)
    assert cost.predict(1, 0) == 2 + 0.5
    assert cost.predict(3, 10) == 3 * 2 + 0.5 * (11 + 12 + 13)


def test_the_largest_chunk_within_a_time() -> None:
    cost = StepTime(ms_per_token=1, ms_per_token_context=0.01)
    for ms in (0.5, 1.01, 7.3, 1000):
        size = cost.max_tokens_within(ms, 100, 64)
        assert 0 <= size <= 64
        assert size == 0 or cost.predict(size, 100) <= ms
        assert size == 64 or cost.predict(size + 1, 100) > ms


def test_no_time_is_no_chunk_and_no_cost_is_the_limit() -> None:
    assert StepTime(ms_per_token=1).max_tokens_within(-1, 0, 10) == 0
    assert StepTime().max_tokens_within(0, 0, 10) == 10
    assert StepTime(ms_per_token=1).max_tokens_within(float("inf"), 0, 10) == 10


def test_values_are_immutable() -> None:
    with pytest.raises(AttributeError):
        StepTime().ms_per_step = 1  # type: ignore[misc]
