from __future__ import annotations

import pytest

from firstword.engine.outputs import CompletionOutput, RequestMetrics, RequestOutput


def metrics(ttft: float | None, e2e: float) -> RequestMetrics:
    return RequestMetrics(ttft, e2e, 0, 0, 0, 0)


def test_speed_is_of_the_tokens_after_the_first() -> None:
    assert metrics(1.0, 3.0).tokens_per_second(11) == 5.0
    assert metrics(0.0, 2.0).tokens_per_second(2) == 0.5


@pytest.mark.parametrize(
    ("ttft", "e2e", "count"),
    [(None, 3.0, 5), (1.0, 1.0, 5), (1.0, 3.0, 1), (1.0, 3.0, 0)],
    ids=["no token", "no time passed", "one token", "none"],
)
def test_no_speed_where_nothing_follows_the_first(
    ttft: float | None, e2e: float, count: int
) -> None:
    assert metrics(ttft, e2e).tokens_per_second(count) is None


def test_a_request_counts_over_all_samples_and_shows_the_first() -> None:
    outputs = (CompletionOutput(0, "a b", (5, 6), "stop"), CompletionOutput(1, "c", (7,), "length"))
    output = RequestOutput("it", None, (1, 2, 3), outputs, 9, metrics(1.0, 2.0))
    assert output.text == "a b"
    assert output.num_prompt_tokens == 3
    assert output.num_output_tokens == 3
