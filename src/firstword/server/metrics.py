"""/metrics: what operators scrape, in Prometheus' text formats.

Names are vLLM's where they mean the same, after the prefix `firstword:`. Not here: counting
(trace.metrics) and the engine's own numbers (engine.stats).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from firstword.kvcache.kv_types import mean_kl
from firstword.server.log import RequestRecord
from firstword.server.observed import ObservedLLM
from firstword.trace.metrics import Histogram, ServingMetrics

PREFIX = "firstword:"

Values = Iterable[tuple[tuple[str, ...], float]]
"""A metric's values, each with those of its labels."""


class ServerCollector(Collector):
    """Makes metrics of what was counted, when somebody asks.

    Args:
        llm: the model; its engine's numbers are read at each scrape.
        metrics: what requests took.
    """

    def __init__(self, llm: ObservedLLM, metrics: ServingMetrics) -> None:
        self._llm, self._metrics = llm, metrics
        self._responses: Counter[tuple[str, str, str]] = Counter()

    def answered(self, record: RequestRecord, route: str) -> None:
        """Count an HTTP answer.

        Args:
            record: the request.
            route: the route's path as declared, "" where none matched: clients cannot add labels.
        """
        self._responses[record.method if route else "", route, str(record.status)] += 1

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known once there is a model."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics, as they stand."""
        return chain(self._histograms(), self._request_counters(), self._engine())

    def _histograms(self) -> Iterator[Metric]:
        metrics = self._metrics
        named = {
            "time_to_first_token": (
                metrics.time_to_first_token,
                "First token - arrival, time in the queue included.",
            ),
            "inter_token_latency": (metrics.inter_token_latency, "Each gap between two tokens."),
            "request_time_per_output_token": (
                metrics.time_per_output_token,
                "Mean gap between the tokens of a request.",
            ),
            "e2e_request_latency": (metrics.e2e_latency, "End - arrival."),
            "request_queue_time": (metrics.queue_time, "Arrival to the first step."),
            "request_prefill_time": (metrics.prefill_time, "First step to the first token."),
            "request_decode_time": (metrics.decode_time, "First token to the last."),
            "step_gap": (metrics.step_gap, "From the compiled code of a step to the next one's."),
        }
        for name, (histogram, text) in named.items():
            family = HistogramMetricFamily(
                f"{PREFIX}{name}_seconds", f"{text} Seconds.", labels=["model_name"]
            )
            family.add_metric([self._llm.name], _buckets(histogram), histogram.sum)
            yield family

    def _request_counters(self) -> Iterator[Metric]:
        metrics, name = self._metrics, self._llm.name
        yield _counter("prompt_tokens", "Tokens of prompts.", name, metrics.prompt_tokens)
        yield from self._prompt_sources()
        yield _counter("generation_tokens", "Tokens produced.", name, metrics.generation_tokens)
        yield _counters(
            "request_success",
            "Requests that ended, by how: stop, length, abort or error.",
            ("model_name", "finished_reason"),
            [((name, reason), n) for reason, n in metrics.finished.items()],
        )
        yield _counters(
            "admission_rejections",
            "Requests that were not let in, by why.",
            ("model_name", "reason"),
            [((name, reason), n) for reason, n in metrics.rejected.items()],
        )
        yield _counters(
            "http_responses",
            "HTTP answers; status 0: the client left before one.",
            ("method", "handler", "status"),
            self._responses.items(),
        )

    def _prompt_sources(self) -> Iterator[Metric]:
        """Where prompts came from: in vLLM's words, then by our own sources, then what was missed.

        What is in the pool is local there, whoever computed it; the disk is external.
        """
        metrics, name = self._metrics, self._llm.name
        cached = metrics.prompt_tokens_cached
        by_source = {
            "local_compute": metrics.prompt_tokens - cached.total(),
            "local_cache_hit": cached["memory"] + cached["neighbour"],
            "external_kv_transfer": cached["disk"],
        }
        text = "Tokens of prompts whose keys and values were there already"
        yield _counter("prompt_tokens_cached", f"{text}.", name, cached.total())
        labelled = {
            "prompt_tokens_by_source": ("Tokens of prompts, by source.", "source", by_source),
            "prompt_tokens_cached_by_source": (
                f"{text}: in memory, on the disk, or computed by a neighbour.",
                "source",
                {source: cached[source] for source in ("memory", "disk", "neighbour")},
            ),
            "prefix_cache_misses": (
                "Requests that could reuse no more of their prompt, by why.",
                "cause",
                metrics.cache_misses,
            ),
            "prefix_cache_missed_tokens": (
                "Tokens computed for it, by why.",
                "cause",
                metrics.cache_missed_tokens,
            ),
        }
        for metric, (words, label, values) in labelled.items():
            rows = [((name, value), n) for value, n in values.items()]
            yield _counters(metric, words, ("model_name", label), rows)

    def _engine(self) -> Iterator[Metric]:
        stats, name = self._llm.stats(), self._llm.name
        local = stats.sources.memory + stats.sources.neighbour
        used = stats.num_used_blocks / stats.num_blocks if stats.num_blocks else 0.0
        yield _gauge("num_requests_running", "Requests in the steps.", name, stats.num_running)
        yield _gauge("num_requests_waiting", "Requests in the queue.", name, stats.num_waiting)
        yield _gauge("kv_cache_usage_perc", "Share of the KV blocks in use: 1 is all.", name, used)
        yield from self._kv_type()
        counters = {
            "prefix_cache_queries": (stats.num_prompt_tokens, "Tokens looked up in memory."),
            "prefix_cache_hits": (local, "Tokens found there."),
            "external_prefix_cache_queries": (
                stats.num_prompt_tokens - local,
                "Tokens not found in memory, which the disk may have.",
            ),
            "external_prefix_cache_hits": (stats.sources.disk, "Tokens loaded from the disk."),
            "num_preemptions": (stats.num_preemptions, "Sequences that gave their blocks back."),
            "num_steps": (stats.num_steps, "Steps of the engine: its sign of life."),
            "engine_restarts": (stats.num_restarts, "Engine processes that took another's place."),
        }
        for metric, (value, text) in counters.items():
            yield _counter(metric, text, name, value)

    def _kv_type(self) -> Iterator[Metric]:
        """How keys and values are kept, and what that takes and costs."""
        info, name = self._llm.info, self._llm.name
        yield _gauges(
            "cache_config_info",
            "How keys and values are kept: always 1.",
            ("model_name", "cache_dtype", "block_size"),
            [((name, info.kv_dtype, str(info.block_size)), 1)],
        )
        words = "Bytes of the keys and values of one token, over all layers."
        yield _gauge("kv_cache_bytes_per_token", words, name, info.kv_bytes_per_token)
        yield _gauges(
            "kv_cache_mean_kl_nats",
            "Mean KL divergence of next-token predictions from those with float16 keys and values, "
            "measured once on other models.",
            ("model_name", "measured_on"),
            [((name, model), kl) for model, kl in mean_kl(info.kv_dtype).items()],
        )


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, histogram.bounds), "+Inf"]
    return list(zip(bounds, histogram.cumulative(), strict=True))


def _gauge(name: str, text: str, model: str, value: float) -> Metric:
    return _gauges(name, text, ("model_name",), [((model,), value)])


def _gauges(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(PREFIX + name, text, labels=labels), values)


def _counter(name: str, text: str, model: str, value: float) -> Metric:
    return _counters(name, text, ("model_name",), [((model,), value)])


def _counters(name: str, text: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(CounterMetricFamily(PREFIX + name, text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def router(collector: ServerCollector) -> APIRouter:
    """/metrics, with those of the process itself beside ours."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    routes = APIRouter(tags=["operations"])

    @routes.get("/metrics", summary="Metrics for Prometheus")
    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return routes
