"""What is measured: workloads, and the figures that come of them; not who is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from firstword.bench.serving.exchange import Exchange
from firstword.bench.serving.statistics import Distribution, summarize
from firstword.bench.serving.workloads import Sizes

Figures = Mapping[str, float]
"""By name: seconds, tokens per second, counts, or ratios."""

Exchanges = Sequence[Exchange]


@dataclass(frozen=True)
class Experiment:
    """Workloads run one after the other, and the figures that they give together.

    Args:
        name: of the experiment.
        title: what it is, in words.
        workloads: by name, with their sizes; seeds are those of the round.
        figures: from the exchanges of each workload.
    """

    name: str
    title: str
    workloads: tuple[tuple[str, Sizes], ...]
    figures: Callable[[Sequence[Exchanges]], dict[str, float]]

    def seeded(self, round_number: int) -> tuple[tuple[str, Sizes], ...]:
        """The workloads with prompts that no other round has."""
        step = len(self.workloads)
        return tuple(
            (name, replace(sizes, seed=round_number * step + place))
            for place, (name, sizes) in enumerate(self.workloads)
        )


def many_figures(runs: Sequence[Exchanges]) -> dict[str, float]:
    """Throughput and waiting of many clients."""
    summary = summarize("all", runs[0])
    return {
        "failed": summary.failed,
        "tokens_per_second": summary.output_rate,
        "ttft_p50": _known(summary.ttft).p50,
        "ttft_p95": _known(summary.ttft).p95,
        "itl_p50": _known(summary.itl).p50,
        "itl_p99": _known(summary.itl).p99,
    }


def prefix_once_figures(runs: Sequence[Exchanges]) -> dict[str, float]:
    """What the second request gains from the prefix that it shares with the first."""
    first, second = (_seconds(exchange.ttft) for exchange in runs[0][:2])
    return {"ttft_first": first, "ttft_second": second, "ratio": second / first}


def prefix_many_figures(runs: Sequence[Exchanges]) -> dict[str, float]:
    """What many cold clients gain from a prefix that they all share."""
    shared, distinct = (summarize("all", run) for run in runs)
    ttft_shared, ttft_distinct = _known(shared.ttft).p50, _known(distinct.ttft).p50
    return {
        "failed": shared.failed + distinct.failed,
        "ttft_p50_shared": ttft_shared,
        "ttft_p50_distinct": ttft_distinct,
        "ratio": ttft_shared / ttft_distinct,
        "cached_share": shared.cached_tokens / max(shared.prompt_tokens, 1),
    }


def long_prompt_figures(runs: Sequence[Exchanges]) -> dict[str, float]:
    """What a long prompt and the chats beside it do to each other.

    Of the chats beside it, those count that were under way while the long prompt was.
    """
    group = {name: [e for e in runs[0] if e.group == name] for name in {e.group for e in runs[0]}}
    (long,) = group["long beside them"]
    begin, end = long.started, long.started + _seconds(long.ttft)
    beside = [
        later - earlier
        for exchange in group["chats beside it"]
        for earlier, later in pairwise(exchange.text_times)
        if later > begin and earlier < end
    ]
    alone = _known(summarize("alone", group["chats alone"]).itl)
    disturbed = _known(Distribution.of(beside))
    long_alone = _seconds(group["long alone"][0].ttft)
    return {
        "failed": sum(exchange.error is not None for exchange in runs[0]),
        "itl_p95_alone": alone.p95,
        "itl_p95_ratio": disturbed.p95 / alone.p95,
        "itl_p99_ratio": disturbed.p99 / alone.p99,
        "itl_max_ratio": disturbed.max / alone.max,
        "long_ttft_alone": long_alone,
        "long_ttft_ratio": _seconds(long.ttft) / long_alone,
    }


def two_keys_figures(runs: Sequence[Exchanges]) -> dict[str, float]:
    """What a flood from another key does to a client that asks one thing at a time."""
    alone, beside = (
        median(_seconds(e.ttft) for e in runs[0] if e.group == name and e.error is None)
        for name in ("alone", "beside a flood")
    )
    failed = sum(e.error is not None for e in runs[0] if e.group != "flood")
    return {
        "failed": failed,
        "ttft_p50_alone": alone,
        "ttft_p50_beside": beside,
        "ratio": beside / alone,
    }


_COLD = Sizes(requests=16, input_tokens=50, output_tokens=16, prefix_tokens=1000)
EXPERIMENTS = (
    Experiment(
        "many",
        "16 clients, distinct prompts of 150 tokens, answers of 64",
        (("distinct", Sizes(requests=32)),),
        many_figures,
    ),
    Experiment(
        "prefix-once",
        "one client, two prompts that share 1,000 tokens",
        (("shared-prefix", replace(_COLD, requests=2, concurrency=1)),),
        prefix_once_figures,
    ),
    Experiment(
        "prefix-many",
        "16 cold clients, 1,000 tokens shared and 50 of each; the same without sharing",
        (("shared-prefix", _COLD), ("distinct", replace(_COLD, input_tokens=1050))),
        prefix_many_figures,
    ),
    Experiment(
        "long-prompt",
        "a prompt of 4,000 tokens beside eight short chats",
        (("long-prompt", Sizes(requests=16, concurrency=8)),),
        long_prompt_figures,
    ),
    Experiment(
        "two-keys",
        "a client of one key beside 32 of another",
        (("two-keys", Sizes(requests=8, concurrency=32)),),
        two_keys_figures,
    ),
)
BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


def _known(values: Distribution | None) -> Distribution:
    if values is None:
        raise ValueError("no request was answered")
    return values


def _seconds(value: float | None) -> float:
    if value is None:
        raise ValueError("a request was not answered")
    return value
