from __future__ import annotations

from collections import Counter

import pytest

from firstword.kvcache.sources import CacheMiss
from firstword.trace.metrics import Histogram, RequestObserver, ServingMetrics

MISS = CacheMiss("evicted", 5, 3, (1, 2, 3))


def test_a_value_on_a_bound_belongs_to_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert histogram.cumulative() == [2, 4, 5]
    assert (histogram.count, histogram.sum) == (5, 8.0)


def test_a_value_counts_as_often_as_it_is_told() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(0.5, 3)
    assert (histogram.cumulative(), histogram.sum) == ([3, 3], 1.5)


def test_a_request_of_four_tokens() -> None:
    metrics = ServingMetrics()
    observer = RequestObserver(metrics, arrival=100.0)
    assert observer.ttft is None
    observer.prompt(8, {"memory": 2, "disk": 3}, MISS)
    observer.tokens(0, 1, 101.0)
    observer.tokens(0, 1, 101.5)
    observer.tokens(0, 2, 102.5)
    observer.scheduled(0.25, 0.75)
    observer.finished("stop", 103.0)
    assert observer.ttft == 1.0
    assert metrics.time_to_first_token.sum == 1.0
    gaps = metrics.inter_token_latency
    assert (gaps.count, gaps.sum) == (3, 1.5)
    assert (metrics.decode_time.sum, metrics.time_per_output_token.sum) == (1.5, 0.5)
    assert (metrics.e2e_latency.sum, metrics.queue_time.sum) == (3.0, 0.25)
    assert metrics.prefill_time.sum == 0.75
    assert (metrics.prompt_tokens, observer.num_cached_tokens) == (8, 5)
    assert metrics.prompt_tokens_cached == Counter(memory=2, disk=3)
    assert metrics.cache_misses == Counter(evicted=1)
    assert metrics.cache_missed_tokens == Counter(evicted=3)
    assert (metrics.generation_tokens, metrics.finished) == (4, {"stop": 1})


def test_samples_have_gaps_of_their_own_and_one_first_token() -> None:
    metrics = ServingMetrics()
    observer = RequestObserver(metrics, arrival=0.0)
    for index, now in ((0, 1.0), (1, 1.25), (0, 2.0), (1, 2.25)):
        observer.tokens(index, 1, now)
    assert metrics.time_to_first_token.count == 1
    assert (metrics.inter_token_latency.count, metrics.inter_token_latency.sum) == (2, 2.0)


@pytest.mark.parametrize("num_tokens", [0, 1])
def test_a_request_that_left_early_has_no_mean_gap(num_tokens: int) -> None:
    metrics = ServingMetrics()
    observer = RequestObserver(metrics, arrival=0.0)
    for _ in range(num_tokens):
        observer.tokens(0, 1, 1.0)
    observer.finished("abort", 2.0)
    assert metrics.finished == {"abort": 1}
    assert metrics.time_per_output_token.count == 0
    assert metrics.decode_time.count == num_tokens
    assert metrics.e2e_latency.sum == 2.0


def test_what_the_engine_did_not_say_is_not_counted() -> None:
    metrics = ServingMetrics()
    RequestObserver(metrics, 0.0).scheduled(None, None)
    assert (metrics.queue_time.count, metrics.prefill_time.count) == (0, 0)


def test_rejections_are_counted_by_why() -> None:
    metrics = ServingMetrics()
    RequestObserver(metrics, 0.0).rejected("queue_full")
    assert (metrics.rejected, metrics.finished) == ({"queue_full": 1}, {})
