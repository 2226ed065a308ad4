"""What is counted of requests and of the engine; each step of the fake model takes a second."""

from __future__ import annotations

from dataclasses import replace

from firstword.engine.outputs import PromptProgress
from firstword.engine.request import RequestOptions
from firstword.kvcache.sources import PromptSources
from firstword.kvcache.spec import kv_bytes
from tests.engine.rig import BLOCKS, GREEDY, SPEC, rig


def test_metrics_are_of_the_clock() -> None:
    """Every step takes one second; the prompt of 12 takes two of 8."""
    it = rig(max_num_batched_tokens=8)
    it.engine.add_request("a", list(range(12)), GREEDY)
    it.clock.advance(0.5)  # in the queue
    it.run()
    metrics = it.engine.release("a")
    assert metrics.ttft == 2.5
    assert metrics.e2e == 5.5
    assert metrics.tokens_per_second(4) == 1.0
    assert metrics.num_computed_tokens == 12 + 3
    assert metrics.num_cached_tokens == 0
    assert metrics.num_preemptions == 0
    assert metrics.kv_bytes == kv_bytes(SPEC, 15)


def test_an_arrival_before_the_queue_counts() -> None:
    """Time for the template and the tokenizer is part of the time to the first token."""
    it = rig()
    options = RequestOptions(arrival=it.clock() - 0.25)
    it.engine.add_request("a", [1], GREEDY, options)
    assert it.events[0].time == 100.0
    it.run()
    metrics = it.engine.release("a")
    assert (metrics.ttft, metrics.e2e) == (1.25, 4.25)


def test_a_request_that_never_ran_has_waited_all_the_time() -> None:
    it = rig()
    it.engine.add_request("a", [1], GREEDY)
    it.clock.advance(3)
    it.engine.abort("a")
    metrics = it.engine.release("a")
    assert (metrics.ttft, metrics.queue_seconds, metrics.e2e) == (None, None, 3.0)
    assert metrics.num_computed_tokens == 0


def test_the_time_in_the_queue_ends_with_the_first_step() -> None:
    it = rig(max_num_batched_tokens=8)
    it.engine.add_request("a", list(range(12)), GREEDY)
    it.clock.advance(0.5)
    it.run()
    metrics = it.engine.release("a")
    assert (metrics.queue_seconds, metrics.prefill_seconds) == (0.5, 2.0)


def test_progress_is_told_until_the_prompt_is_read() -> None:
    it = rig(max_num_batched_tokens=8)
    it.engine.add_request("first", list(range(8)), replace(GREEDY, max_tokens=1))
    it.run()
    it.engine.add_request("a", list(range(8)) * 3, GREEDY)
    assert it.engine.progress() == []  # of the last step, in which it was not
    it.engine.step()
    assert it.engine.progress() == [("a", PromptProgress(24, PromptSources(8), 16, 0, 1.0))]
    it.engine.step()
    assert it.engine.progress() == [("a", PromptProgress(24, PromptSources(8), 24, 0, 2.0))]
    it.engine.step()
    assert it.engine.progress() == []


def test_a_prompt_of_one_step_is_told_of_too() -> None:
    it = rig(max_num_batched_tokens=8)
    it.engine.add_request("a", list(range(8)), replace(GREEDY, n=2, max_tokens=3))
    it.engine.step()
    assert it.engine.progress() == [("a", PromptProgress(8, PromptSources(), 8, 0, 1.0))]
    it.engine.step()
    assert it.engine.progress() == []


def test_the_counters_are_sums_over_all_requests() -> None:
    it = rig()
    for name in ("a", "b"):
        it.engine.add_request(name, list(range(12)), GREEDY)
        it.run()
        it.engine.release(name)
    stats = it.engine.stats
    assert stats.num_prompt_tokens == 24
    assert stats.sources == PromptSources(memory=11)
    assert stats.num_cached_tokens == 11
    assert stats.num_computed_tokens == 12 + 3 + 1 + 3
    assert stats.num_generated_tokens == 8
    assert (stats.num_steps, stats.num_preemptions) == (8, 0)
    assert (stats.num_blocks, stats.num_used_blocks) == (BLOCKS, 0)
