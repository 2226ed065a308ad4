from __future__ import annotations

import httpx
from prometheus_client.parser import text_string_to_metric_families

from firstword.engine.stats import EngineStats
from firstword.kvcache.kv_types import MEAN_KL_Q8
from firstword.kvcache.sources import CacheMiss, PromptSources
from firstword.server.app import create_app
from tests.server.fake_llm import Script
from tests.server.operated import CHAT, OperatedFake, with_client

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of_model(samples: Samples, name: str, **labels: str) -> float:
    key = tuple(sorted({"model_name": "fake:1m", **labels}.items()))
    return samples[f"firstword:{name}", key]


def scrape(llm: OperatedFake, num_requests: int, accept: str = "") -> tuple[str, str]:
    """What /metrics says after some requests, and its content type."""
    told: list[httpx.Response] = []

    async def act(client: httpx.AsyncClient) -> None:
        for _ in range(num_requests):
            await client.post("/v1/chat/completions", json=CHAT)
        await client.get("/v1/nothing/at-all")
        told.append(await client.get("/metrics", headers={"accept": accept}))

    with_client(create_app(llm), act)
    return told[0].text, told[0].headers["content-type"]


def test_requests_are_counted_under_the_names_that_dashboards_know() -> None:
    miss = CacheMiss("evicted", 6, 3)
    llm = OperatedFake(Script(text="Hello", sources=PromptSources(2, 3, 1), miss=miss))
    text, content_type = scrape(llm, 3)
    assert content_type.startswith("text/plain")
    samples = read(text)
    num_prompt = len(llm.requests[0].prompt.token_ids)
    assert of_model(samples, "prompt_tokens_total") == 3 * num_prompt
    assert of_model(samples, "prompt_tokens_cached_total") == 18
    by_source = {
        "local_compute": 3 * (num_prompt - 6),
        "local_cache_hit": 9,
        "external_kv_transfer": 9,
    }
    for source, count in by_source.items():
        assert of_model(samples, "prompt_tokens_by_source_total", source=source) == count
    for source, count in {"memory": 6, "disk": 9, "neighbour": 3}.items():
        assert of_model(samples, "prompt_tokens_cached_by_source_total", source=source) == count
    assert of_model(samples, "prefix_cache_misses_total", cause="evicted") == 3
    assert of_model(samples, "prefix_cache_missed_tokens_total", cause="evicted") == 9
    assert of_model(samples, "generation_tokens_total") == 18
    assert of_model(samples, "request_success_total", finished_reason="stop") == 3
    assert of_model(samples, "time_to_first_token_seconds_count") == 3
    assert of_model(samples, "inter_token_latency_seconds_count") == 15
    for name in ("e2e_request_latency", "request_decode_time", "request_time_per_output_token"):
        assert of_model(samples, f"{name}_seconds_count") == 3
        assert of_model(samples, f"{name}_seconds_bucket", le="+Inf") == 3
    answered = (("handler", "/v1/chat/completions"), ("method", "POST"), ("status", "200"))
    assert samples["firstword:http_responses_total", answered] == 3


def test_time_between_steps_is_counted_as_the_engine_tells_it() -> None:
    llm = OperatedFake()
    told: list[httpx.Response] = []

    async def act(client: httpx.AsyncClient) -> None:
        assert llm.on_gap is not None
        for ms in (0.04, 0.3, 7.0):
            llm.on_gap(ms)
        told.append(await client.get("/metrics"))

    with_client(create_app(llm), act)
    samples = read(told[0].text)
    assert of_model(samples, "step_gap_seconds_count") == 3
    assert of_model(samples, "step_gap_seconds_bucket", le="0.0005") == 2


def test_paths_that_are_none_do_not_become_labels() -> None:
    text, _ = scrape(OperatedFake(), 0)
    unknown = (("handler", ""), ("method", ""), ("status", "404"))
    assert read(text)["firstword:http_responses_total", unknown] == 1
    assert "at-all" not in text


def test_the_engine_tells_its_own() -> None:
    figures = EngineStats(
        num_running=3,
        num_waiting=4,
        num_used_blocks=25,
        num_blocks=100,
        num_steps=7,
        num_prompt_tokens=1000,
        sources=PromptSources(memory=500, disk=250, neighbour=100),
        num_preemptions=2,
        num_restarts=1,
    )
    samples = read(scrape(OperatedFake(figures=figures), 0)[0])
    assert of_model(samples, "num_requests_running") == 3
    assert of_model(samples, "num_requests_waiting") == 4
    assert of_model(samples, "kv_cache_usage_perc") == 0.25
    assert of_model(samples, "prefix_cache_queries_total") == 1000
    assert of_model(samples, "prefix_cache_hits_total") == 600
    assert of_model(samples, "external_prefix_cache_queries_total") == 400
    assert of_model(samples, "external_prefix_cache_hits_total") == 250
    assert of_model(samples, "num_preemptions_total") == 2
    assert of_model(samples, "num_steps_total") == 7
    assert of_model(samples, "engine_restarts_total") == 1
    assert ("process_resident_memory_bytes", ()) in samples


def test_the_type_of_keys_and_values_is_told_with_what_it_costs() -> None:
    llm = OperatedFake()
    samples = read(scrape(llm, 0)[0])
    kept = {"cache_dtype": "float16", "block_size": "32"}
    assert of_model(samples, "cache_config_info", **kept) == 1
    assert of_model(samples, "kv_cache_bytes_per_token") == 10
    assert not [name for name, _ in samples if name.startswith("firstword:kv_cache_mean_kl")]
    llm.kv_dtype = "q8"
    samples = read(scrape(llm, 0)[0])
    assert of_model(samples, "cache_config_info", **{**kept, "cache_dtype": "q8"}) == 1
    for model, kl in MEAN_KL_Q8.items():
        assert of_model(samples, "kv_cache_mean_kl_nats", measured_on=model) == kl


def test_open_metrics_is_spoken_too() -> None:
    text, content_type = scrape(OperatedFake(), 1, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
