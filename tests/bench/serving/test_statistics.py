from __future__ import annotations

import pytest

from firstword.bench.serving.exchange import Exchange, Usage
from firstword.bench.serving.statistics import (
    Distribution,
    Limits,
    by_group,
    by_key,
    percentile,
    summarize,
)


def answered(started: float, *times: float, key: int = 0, group: str = "g") -> Exchange:
    """An exchange that ended with its last text."""
    usage = Usage(prompt=10, cached=4, completion=2 * len(times))
    return Exchange(
        group, key, started=started, text_times=list(times), ended=times[-1], usage=usage
    )


def test_percentiles_are_interpolated() -> None:
    values = [4.0, 1.0, 3.0, 2.0]
    assert percentile(values, 0) == 1 and percentile(values, 1) == 4
    assert percentile(values, 0.5) == 2.5
    assert percentile(values, 0.95) == pytest.approx(3.85)
    assert percentile([7.0], 0.99) == 7


def test_a_distribution_leaves_out_what_is_not_known() -> None:
    values = Distribution.of([1.0, None, 3.0, 2.0])
    assert values is not None
    assert (values.count, values.mean, values.p50, values.max) == (3, 2, 2, 3)
    assert values.p95 == pytest.approx(2.9) and values.p99 == pytest.approx(2.98)
    assert Distribution.of([None]) is None


def test_a_summary_against_numbers_by_hand() -> None:
    exchanges = [
        answered(0, 1, 2, 4),
        answered(1, 3, 4, 5),
        Exchange("g", started=2, error="HTTP 503"),
        Exchange("g", started=2, error="HTTP 503"),
        Exchange("g", started=2, text_times=[6], left=True),
    ]
    summary = summarize("g", exchanges)
    assert (summary.requests, summary.complete, summary.left, summary.failed) == (5, 2, 1, 2)
    assert summary.errors == {"HTTP 503": 2}
    assert summary.seconds == 6  # to the last sign of any request
    assert (summary.prompt_tokens, summary.cached_tokens, summary.completion_tokens) == (20, 8, 12)
    assert (summary.input_rate, summary.output_rate) == (20 / 6, 2)
    assert summary.request_rate == pytest.approx(1 / 3)
    assert summary.ttft is not None and (summary.ttft.mean, summary.ttft.max) == (1.5, 2)
    assert summary.itl is not None and (summary.itl.count, summary.itl.mean) == (4, 1.25)
    assert summary.e2e is not None and summary.e2e.p50 == 4
    assert summary.tpot is not None and summary.tpot.mean == pytest.approx((3 / 5 + 2 / 5) / 2)
    assert summary.good is None and summary.goodput is None


def test_goodput_counts_requests_within_all_limits() -> None:
    slow_first, slow_gap, good = answered(0, 3, 4), answered(0, 1, 9), answered(0, 1, 2)
    failed = Exchange("g", error="timeout")
    assert summarize("g", [slow_first, slow_gap, good, failed], Limits(2, 2)).good == 1
    assert summarize("g", [slow_first, slow_gap, good], Limits(ttft=2)).good == 2
    assert summarize("g", [slow_first, slow_gap, good], Limits(itl=2)).good == 2
    summary = summarize("g", [slow_gap, good], Limits(2, 2))
    assert summary.goodput == pytest.approx(1 / 9)


def test_one_gap_in_twenty_may_pass_the_limit() -> None:
    times = [float(n) for n in range(1, 22)]
    once = answered(0, *times, times[-1] + 50)
    assert Limits(itl=3.5).hold(once) and not Limits(itl=0.5).hold(once)


def test_groups_and_keys_are_told_apart() -> None:
    exchanges = [answered(5, 6, group="b"), answered(1, 2, key=1, group="a")]
    assert [summary.name for summary in by_group(exchanges)] == ["a", "b"]
    assert [summary.name for summary in by_key(exchanges)] == ["key 0", "key 1"]
    assert by_key(exchanges[:1]) == []


def test_nothing_measured_is_no_error() -> None:
    summary = summarize("g", [])
    assert (summary.seconds, summary.output_rate, summary.ttft) == (0, 0, None)
