"""Results for people, on 80 columns, and for programs, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from firstword.bench.machine import Fingerprint
from firstword.bench.serving.exchange import Exchange
from firstword.bench.serving.statistics import (
    Distribution,
    Limits,
    Summary,
    by_group,
    by_key,
)
from firstword.bench.serving.workloads import Sizes

FORMAT = 1
"""Version of the JSON's form."""

_DISTRIBUTION_HEADER = f"  {'ms':<8}" + "".join(
    f"{name:>11}" for name in ("mean", "p50", "p95", "p99", "max")
)


@dataclass(frozen=True)
class Setting:
    """What all requests have in common.

    Args:
        base_url: of the server.
        model: as the server names it.
        workload: by name.
        sizes: of it.
        limits: of goodput.
        warm_up: requests before that did not count.
        machine: that the client ran on.
        load_average: before and after.
        time: when it began, in UTC.
        was_interrupted: whether somebody stopped it.
    """

    base_url: str
    model: str
    workload: str
    sizes: Sizes
    limits: Limits
    warm_up: int
    machine: Fingerprint
    load_average: tuple[float | None, float | None]
    time: str
    was_interrupted: bool = False


def render(exchanges: Sequence[Exchange], setting: Setting) -> str:
    """The report as text of at most 80 columns."""
    sizes = setting.sizes
    rate = sizes.rate
    loop = f"{sizes.concurrency} clients" if rate is None else f"{rate:g} conversations/s"
    lines = [
        _at(setting.model, setting.base_url),
        f"{setting.workload}: {sizes.input_tokens} tokens in, {sizes.output_tokens} out; "
        f"{loop}; seed {sizes.seed}"[:80],
    ]
    if setting.was_interrupted:
        lines.append("Interrupted: this is what was measured so far.")
    for summary in by_group(exchanges, setting.limits):
        lines += ["", *_group_lines(summary)]
    if keys := by_key(exchanges, setting.limits):
        lines += ["", *_key_lines(keys)]
    lines += _failure_lines(exchanges)
    return "\n".join(lines)


def _at(model: str, url: str) -> str:
    """The model and its server; of a long path, which servers use as a name, the end."""
    room = max(79 - len(f" at {url}"), 8)
    return f"{model if len(model) <= room else '…' + model[-room:]} at {url}"


def _group_lines(summary: Summary) -> list[str]:
    left = f", {summary.left} left" if summary.left else ""
    lines = [
        f"{summary.name}: {summary.complete} of {summary.requests} requests complete, "
        f"{summary.failed} failed{left}, {summary.seconds:.1f} s",
        f"  tokens  {summary.prompt_tokens:,} in ({summary.cached_tokens:,} cached), "
        f"{summary.completion_tokens:,} out",
        f"  per s   {summary.input_rate:,.1f} in, {summary.output_rate:,.1f} out, "
        f"{summary.request_rate:,.2f} requests",
    ]
    if summary.goodput is not None and summary.good is not None:
        share = summary.good / summary.requests if summary.requests else 0.0
        lines.append(f"  goodput {summary.goodput:,.2f} requests per s, {share:.0%} of all")
    rows = [
        _distribution_line(name, values)
        for name, values in (
            ("TTFT", summary.ttft),
            ("ITL", summary.itl),
            ("TPOT", summary.tpot),
            ("E2E", summary.e2e),
        )
        if values is not None
    ]
    return [*lines, _DISTRIBUTION_HEADER, *rows] if rows else lines


def _distribution_line(name: str, values: Distribution) -> str:
    seconds = (values.mean, values.p50, values.p95, values.p99, values.max)
    return f"  {name:<8}" + "".join(f"{1000 * value:>11,.1f}" for value in seconds)


def _key_lines(keys: Sequence[Summary]) -> list[str]:
    header = (
        f"{'by key':<10}{'requests':>9}{'failed':>8}{'tokens/s':>10}"
        f"{'TTFT p50':>11}{'TTFT p95':>11}{'ITL p95':>11}"
    )
    lines = [header]
    for key in keys:
        ttft = [None, None] if key.ttft is None else [key.ttft.p50, key.ttft.p95]
        times = [*ttft, None if key.itl is None else key.itl.p95]
        cells = "".join(f"{'-' if t is None else f'{1000 * t:,.1f}':>11}" for t in times)
        lines.append(
            f"{key.name:<10}{key.requests:>9}{key.failed:>8}{key.output_rate:>10,.1f}{cells}"
        )
    return lines


def _failure_lines(exchanges: Sequence[Exchange]) -> list[str]:
    """Each kind of failure with its number and the first one's detail."""
    firsts: dict[str, Exchange] = {}
    counts: dict[str, int] = {}
    for exchange in exchanges:
        if exchange.error is not None:
            firsts.setdefault(exchange.error, exchange)
            counts[exchange.error] = counts.get(exchange.error, 0) + 1
    lines = [f"  {counts[kind]} x {kind}: {one.detail}"[:80] for kind, one in firsts.items()]
    return ["", "failures", *lines] if lines else []


def to_dict(exchanges: Sequence[Exchange], setting: Setting) -> dict[str, object]:
    """The report as plain values: the setting, groups, keys, and every request."""
    return {
        "format": FORMAT,
        "setting": asdict(setting),
        "groups": [summary_dict(summary) for summary in by_group(exchanges, setting.limits)],
        "keys": [summary_dict(summary) for summary in by_key(exchanges, setting.limits)],
        "requests": [_request_dict(exchange) for exchange in exchanges],
    }


def summary_dict(summary: Summary) -> dict[str, object]:
    """A summary with its rates."""
    return asdict(summary) | {
        "errors": dict(summary.errors),
        "input_rate": summary.input_rate,
        "output_rate": summary.output_rate,
        "request_rate": summary.request_rate,
        "goodput": summary.goodput,
    }


def _request_dict(exchange: Exchange) -> dict[str, object]:
    """A request with its times relative to its start, and without its text."""
    return {
        "group": exchange.group,
        "key": exchange.key,
        "turn": exchange.turn,
        "started": exchange.started,
        "ttft": exchange.ttft,
        "gaps": exchange.gaps,
        "e2e": exchange.e2e,
        "usage": None if exchange.usage is None else asdict(exchange.usage),
        "finish_reason": exchange.finish_reason,
        "error": exchange.error,
        "detail": exchange.detail,
        "left": exchange.left,
    }
