from __future__ import annotations

import pytest

from benchmarks.serving.experiments import (
    BY_NAME,
    EXPERIMENTS,
    long_prompt_figures,
    many_figures,
    prefix_many_figures,
    prefix_once_figures,
    two_keys_figures,
)
from firstword.bench.serving.exchange import Exchange, Usage
from firstword.bench.serving.workloads import WORKLOADS


def answered(started: float, *times: float, group: str = "g", cached: int = 0) -> Exchange:
    usage = Usage(100, cached, 10)
    return Exchange(group, started=started, text_times=list(times), ended=times[-1], usage=usage)


def test_no_two_rounds_or_experiments_share_a_seed() -> None:
    assert list(BY_NAME) == [experiment.name for experiment in EXPERIMENTS]
    for experiment in EXPERIMENTS:
        seeds = [
            sizes.seed
            for number in range(5)
            for name, sizes in experiment.seeded(number)
            if name in WORKLOADS
        ]
        assert len(set(seeds)) == len(seeds) == 5 * len(experiment.workloads)


def test_throughput_counts_tokens_and_failures() -> None:
    failed = Exchange("g", started=1, error="timeout")
    figures = many_figures([[answered(0, 1, 2), answered(0, 3, 4), failed]])
    assert figures["tokens_per_second"] == 20 / 4 and figures["failed"] == 1
    assert (figures["ttft_p50"], figures["itl_p50"]) == (2, 1)


def test_the_second_request_is_set_against_the_first() -> None:
    assert prefix_once_figures([[answered(0, 2), answered(5, 5.5)]])["ratio"] == 0.25


def test_shared_prefixes_are_set_against_distinct_ones() -> None:
    shared = [answered(0, 1, cached=80), answered(0, 3, cached=100)]
    figures = prefix_many_figures([shared, [answered(0, 8)]])
    assert figures["ratio"] == 0.25 and figures["cached_share"] == 0.9


def test_only_gaps_beside_the_long_prompt_count() -> None:
    figures = long_prompt_figures(
        [
            [
                answered(0, 1, 2, 3, group="chats alone"),
                answered(10, 12, group="long alone"),
                answered(20, 21, 121, 122, 126, 226, group="chats beside it"),
                answered(121.5, 125.5, group="long beside them"),
            ]
        ]
    )
    assert figures["itl_max_ratio"] == 4  # neither the 100 s before nor those after
    assert figures["itl_p95_ratio"] == pytest.approx(1 + 3 * 0.95)
    assert figures["long_ttft_ratio"] == 2


def test_one_key_is_set_against_itself() -> None:
    alone = [answered(0, 1, group="alone"), answered(0, 3, group="alone")]
    beside = [answered(0, 6, group="beside a flood"), Exchange("flood", error="HTTP 429")]
    figures = two_keys_figures([[*alone, *beside]])
    assert figures["ratio"] == 3 and figures["failed"] == 0  # the flood may be refused


def test_what_was_not_answered_has_no_figures() -> None:
    with pytest.raises(ValueError, match="was not answered"):
        prefix_once_figures([[Exchange("g"), Exchange("g")]])
    with pytest.raises(ValueError, match="no request"):
        many_figures([[Exchange("g", error="timeout")]])
