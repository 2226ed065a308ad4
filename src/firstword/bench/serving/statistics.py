"""Exchanges made into numbers: rates, distributions, goodput; no text of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from firstword.bench.serving.exchange import Exchange

_GAP_SHARE = 0.95


@dataclass(frozen=True)
class Limits:
    """What makes a request good.

    Args:
        ttft: seconds to the first text, at most; None for any.
        itl: seconds that 95% of the request's gaps may take, at most; None for any.
    """

    ttft: float | None = None
    itl: float | None = None

    def __bool__(self) -> bool:
        return self.ttft is not None or self.itl is not None

    def hold(self, exchange: Exchange) -> bool:
        """Whether a request was complete and kept to them."""
        if not exchange.is_complete or exchange.ttft is None:
            return False
        if self.ttft is not None and exchange.ttft > self.ttft:
            return False
        gaps = exchange.gaps
        return self.itl is None or not gaps or percentile(gaps, _GAP_SHARE) <= self.itl


@dataclass(frozen=True)
class Distribution:
    """Seconds, of many.

    Args:
        count: how many.
        mean, p50, p95, p99, max: of them.
    """

    count: int
    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Distribution | None:
        """The distribution of the values that are known; None where none is."""
        known = sorted(value for value in values if value is not None)
        if not known:
            return None
        mean = sum(known) / len(known)
        p50, p95, p99 = (percentile(known, share) for share in (0.5, 0.95, 0.99))
        return cls(len(known), mean, p50, p95, p99, known[-1])


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of all lies, with linear interpolation (Hyndman-Fan 7).

    Args:
        values: at least one.
        share: 0 to 1.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True)
class Summary:
    """A group of requests in numbers.

    Args:
        name: of the group.
        requests: all that were sent.
        complete: answered to the end.
        left: given up by the client, as meant.
        errors: failures by kind.
        seconds: from the first request's start to the last sign of any.
        prompt_tokens, cached_tokens, completion_tokens: of the complete ones, by `usage`.
        ttft, itl, tpot, e2e: of the complete ones; None where there is nothing to tell.
        good: complete requests within the limits; None without limits.
    """

    name: str
    requests: int
    complete: int
    left: int
    errors: Mapping[str, int]
    seconds: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft: Distribution | None
    itl: Distribution | None
    tpot: Distribution | None
    e2e: Distribution | None
    good: int | None

    @property
    def failed(self) -> int:
        """Requests that failed, of any kind."""
        return sum(self.errors.values())

    @property
    def input_rate(self) -> float:
        """Prompt tokens per second, cached ones included."""
        return self._rate(self.prompt_tokens)

    @property
    def output_rate(self) -> float:
        """Tokens of answers per second."""
        return self._rate(self.completion_tokens)

    @property
    def request_rate(self) -> float:
        """Complete requests per second."""
        return self._rate(self.complete)

    @property
    def goodput(self) -> float | None:
        """Good requests per second; None without limits."""
        return None if self.good is None else self._rate(self.good)

    def _rate(self, count: int) -> float:
        return count / self.seconds if self.seconds > 0 else 0.0


def summarize(name: str, exchanges: Sequence[Exchange], limits: Limits | None = None) -> Summary:
    """The numbers of a group.

    Args:
        name: of the group.
        exchanges: its requests.
        limits: what makes one good.
    """
    complete = [exchange for exchange in exchanges if exchange.is_complete]
    usages = [exchange.usage for exchange in complete if exchange.usage is not None]
    return Summary(
        name=name,
        requests=len(exchanges),
        complete=len(complete),
        left=sum(exchange.left for exchange in exchanges),
        errors=Counter(e.error for e in exchanges if e.error is not None),
        seconds=_span(exchanges),
        prompt_tokens=sum(usage.prompt for usage in usages),
        cached_tokens=sum(usage.cached for usage in usages),
        completion_tokens=sum(usage.completion for usage in usages),
        ttft=Distribution.of(exchange.ttft for exchange in complete),
        itl=Distribution.of(gap for exchange in complete for gap in exchange.gaps),
        tpot=Distribution.of(exchange.tpot for exchange in complete),
        e2e=Distribution.of(exchange.e2e for exchange in complete),
        good=sum(map(limits.hold, complete)) if limits else None,
    )


def by_group(exchanges: Sequence[Exchange], limits: Limits | None = None) -> list[Summary]:
    """The numbers of each group, in the order of their first requests."""
    groups: dict[str, list[Exchange]] = {}
    for exchange in sorted(exchanges, key=lambda exchange: exchange.started):
        groups.setdefault(exchange.group, []).append(exchange)
    return [summarize(name, members, limits) for name, members in groups.items()]


def by_key(exchanges: Sequence[Exchange], limits: Limits | None = None) -> list[Summary]:
    """The numbers of each API key, in their order; empty where there is only one."""
    keys = sorted({exchange.key for exchange in exchanges})
    if len(keys) < 2:
        return []
    return [summarize(f"key {key}", [e for e in exchanges if e.key == key], limits) for key in keys]


def _span(exchanges: Sequence[Exchange]) -> float:
    if not exchanges:
        return 0.0
    last = max(
        max([e.started, *e.text_times[-1:], *([] if e.ended is None else [e.ended])])
        for e in exchanges
    )
    return last - min(exchange.started for exchange in exchanges)
