"""What many requests took, as counts and histograms that only grow.

Filled by whoever reads the streams. Not here: the format that operators scrape (server.metrics)
and the story of one request (explain).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from firstword.trace.misses import Miss

FIRST_TOKEN_SECONDS = (
    0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
)  # fmt: skip
TOKEN_SECONDS = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075,
    0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0,
)  # fmt: skip
GAP_SECONDS = (
    0.00005, 0.0001, 0.0002, 0.0003, 0.0004, 0.0005, 0.00075, 0.001, 0.002, 0.005, 0.01, 0.1,
)  # fmt: skip
REQUEST_SECONDS = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 5.0,
    10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 120.0, 240.0, 480.0, 960.0,
)  # fmt: skip


class Histogram:
    """How often values fell into which bucket.

    One observation costs a bisection and no lock: it is made in one thread, for every token.

    Args:
        bounds: upper bounds of the buckets, inclusive and rising; a last one holds the rest.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, `times` over."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """Values counted."""
        return sum(self._counts)

    def cumulative(self) -> list[int]:
        """For each bound, and at last for all: values up to it."""
        return list(accumulate(self._counts))


class ServingMetrics:
    """All requests of a server. Times are seconds.

    Attributes:
        time_to_first_token: first token - arrival, queue included.
        inter_token_latency: each gap between two tokens of a sample.
        time_per_output_token: (last token - first token) / (tokens - 1), once per request.
        e2e_latency: end - arrival.
        queue_time: from arrival to the first step that it took part in.
        prefill_time: from there to the first token.
        decode_time: from the first token to the last.
        step_gap: from the compiled code of one step to that of the next, while there is work.
        prompt_tokens: tokens of prompts.
        prompt_tokens_cached: of these, tokens whose K/V were reused, by where they came from:
            memory, disk, neighbour.
        cache_misses: requests that could reuse no more of their prompt, by cause.
        cache_missed_tokens: tokens that were computed for it, by cause.
        generation_tokens: tokens produced.
        finished: requests, by how they ended: stop, length, tool_calls, abort or error.
        rejected: requests that were not let in, by why.
    """

    def __init__(self) -> None:
        self.time_to_first_token = Histogram(FIRST_TOKEN_SECONDS)
        self.inter_token_latency = Histogram(TOKEN_SECONDS)
        self.time_per_output_token = Histogram(TOKEN_SECONDS)
        self.e2e_latency = Histogram(REQUEST_SECONDS)
        self.queue_time = Histogram(REQUEST_SECONDS)
        self.prefill_time = Histogram(REQUEST_SECONDS)
        self.decode_time = Histogram(REQUEST_SECONDS)
        self.step_gap = Histogram(GAP_SECONDS)
        self.prompt_tokens = 0
        self.prompt_tokens_cached: Counter[str] = Counter()
        self.cache_misses: Counter[str] = Counter()
        self.cache_missed_tokens: Counter[str] = Counter()
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()


class RequestObserver:
    """Follows one request and adds what it took to the metrics.

    Args:
        metrics: where it is added.
        arrival: when the request came, seconds of the clock that every `now` is on.
    """

    def __init__(self, metrics: ServingMetrics, arrival: float) -> None:
        self._metrics = metrics
        self.arrival = arrival
        self.first_token: float | None = None
        self.num_output_tokens = 0
        self.num_prompt_tokens = 0
        self.sources: Mapping[str, int] = {}
        self.miss: Miss | None = None
        self._last_token: dict[int, float] = {}

    @property
    def ttft(self) -> float | None:
        """First token - arrival; None before it."""
        return None if self.first_token is None else self.first_token - self.arrival

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of its prompt that needed no reading."""
        return sum(self.sources.values())

    def prompt(self, num_tokens: int, sources: Mapping[str, int], miss: Miss | None = None) -> None:
        """How long its prompt is, where what needed no reading came from, and why no more did."""
        self.num_prompt_tokens, self.sources, self.miss = num_tokens, sources, miss

    def tokens(self, index: int, count: int, now: float) -> None:
        """`count` >= 1 tokens of sample `index` came together."""
        metrics = self._metrics
        metrics.generation_tokens += count
        self.num_output_tokens += count
        last = self._last_token.get(index)
        self._last_token[index] = now
        if last is not None:
            metrics.inter_token_latency.observe((now - last) / count, count)
        elif self.first_token is None:
            self.first_token = now
            metrics.time_to_first_token.observe(now - self.arrival)

    def scheduled(self, queue_seconds: float | None, prefill_seconds: float | None) -> None:
        """How long it waited and how long its prompt was read, as the engine says."""
        if queue_seconds is not None:
            self._metrics.queue_time.observe(queue_seconds)
        if prefill_seconds is not None:
            self._metrics.prefill_time.observe(prefill_seconds)

    def rejected(self, reason: str) -> None:
        """It was not let in."""
        self._metrics.rejected[reason] += 1

    def finished(self, reason: str, now: float) -> None:
        """It ended: stop, length, tool_calls, abort or error."""
        metrics = self._metrics
        metrics.finished[reason] += 1
        metrics.prompt_tokens += self.num_prompt_tokens
        metrics.prompt_tokens_cached.update(self.sources)
        if self.miss is not None:
            metrics.cache_misses[self.miss.cause] += 1
            metrics.cache_missed_tokens[self.miss.cause] += self.miss.num_tokens
        metrics.e2e_latency.observe(now - self.arrival)
        if self.first_token is None:
            return
        decode = max(self._last_token.values()) - self.first_token
        metrics.decode_time.observe(decode)
        if self.num_output_tokens > 1:
            metrics.time_per_output_token.observe(decode / (self.num_output_tokens - 1))
