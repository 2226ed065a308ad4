from __future__ import annotations

from benchmarks.serving.__main__ import SERVERS
from benchmarks.serving.checks import CHECKS, OURS, PEER
from benchmarks.serving.compare import Results
from benchmarks.serving.experiments import BY_NAME

FASTER, SOONER, *_ = CHECKS


def test_goals_are_about_servers_and_experiments_that_there_are() -> None:
    assert {check.experiment for check in CHECKS} <= set(BY_NAME)
    assert {OURS, PEER} <= set(SERVERS)


def test_ratios_are_ours_over_theirs() -> None:
    results = Results()
    results.add("many", OURS, {"tokens_per_second": 300, "ttft_p50": 1})
    results.add("many", PEER, {"tokens_per_second": 60, "ttft_p50": 2})
    assert FASTER.value(results) == 5 and FASTER.is_met(5) and not FASTER.is_met(3.9)
    assert SOONER.value(results) == 0.5 and not SOONER.is_met(0.5) and SOONER.is_met(0.3)


def test_what_was_not_measured_has_no_value() -> None:
    results = Results()
    assert [check.value(results) for check in CHECKS] == [None] * len(CHECKS)
    results.add("many", OURS, {"tokens_per_second": 300})
    assert FASTER.value(results) is None
    results.add("prefix-once", OURS, {"ratio": 0.1})
    alone = next(check for check in CHECKS if check.experiment == "prefix-once")
    assert alone.value(results) == 0.1
