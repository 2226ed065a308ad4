"""Load or compute: whichever is sooner; and where the tokens came from in the end."""

from __future__ import annotations

from typing import Any

import pytest

from firstword.engine.request import Request
from firstword.engine.step import StepTime
from firstword.kvcache.loads import LoadPlan, Loads
from firstword.kvcache.sources import PromptSources
from firstword.kvcache.spec import KVCacheSpec
from tests.fakes import Driver, full_group, sliding_group

PROMPT = (1, 2, 3, 4) * 6


def driver_after(*prompts: tuple[int, ...], num_blocks: int = 64, ms_per_page: float = 0) -> Driver:
    """A driver that was started anew after one that has read these prompts."""
    groups = (full_group(0), sliding_group(1, 6))
    step_time = StepTime(ms_per_step=1, ms_per_token=1)
    driver = Driver(groups, step_time=step_time, has_tier=True)
    for i, prompt in enumerate(prompts):
        driver.run(Request(f"before {i}", prompt, 1))
    again = Driver(groups, num_blocks=num_blocks, step_time=step_time, has_tier=True)
    again.tier.kept = driver.tier.kept
    again.tier.ms_per_page = ms_per_page
    return again


def sources(request: Request) -> PromptSources:
    return request.sequences[0].sources


def test_what_is_on_the_disk_is_not_computed() -> None:
    driver = driver_after(PROMPT)
    request = Request("it", PROMPT, 3)
    driver.run(request)
    assert sources(request) == (0, 23, 0)
    assert driver.runner.num_positions == 1 + 2
    driver.check_outputs(request)


def test_what_takes_longer_to_load_is_computed() -> None:
    driver = driver_after(PROMPT, ms_per_page=100)
    request = Request("it", PROMPT, 3)
    driver.run(request)
    assert sources(request) == (0, 0, 0)
    assert driver.tier.num_pages_read == 0
    assert request.sequences[0].miss is not None
    assert request.sequences[0].miss.cause == "too_short"


def test_others_are_served_while_one_is_loaded_for() -> None:
    driver = driver_after(PROMPT)
    loaded, computed = Request("loaded", PROMPT, 3), Request("computed", (9, 9), 5)
    driver.scheduler.add(loaded)
    driver.scheduler.add(computed)
    output = driver.scheduler.schedule()
    assert output is not None
    assert output.request_ids == {"computed"}
    driver.update(output)
    assert driver.tier.pending
    driver.run()
    driver.check_outputs(loaded, computed)
    assert sources(loaded) == (0, 23, 0)


def test_two_that_share_a_prompt_load_it_once() -> None:
    driver = driver_after(PROMPT)
    first, second = Request("a", (*PROMPT, 5, 6), 3), Request("b", (*PROMPT, 7, 8), 3)
    driver.run(first, second)
    assert driver.tier.num_pages_read == 6 + 2
    assert (sources(first), sources(second)) == ((0, 24, 0), (0, 24, 0))
    driver.check_outputs(first, second)


def test_memory_disk_and_neighbour_add_up() -> None:
    driver = driver_after(PROMPT)
    driver.run(Request("memory", PROMPT[:8], 1))
    first = Request("a", (*PROMPT, 5, 6, 7, 8, 5, 6, 7, 8, 9), 2)
    second = Request("b", (*PROMPT, 5, 6, 7, 8, 5, 6, 7, 8, 1), 2)
    driver.run(first, second)
    assert sources(first) == (8, 16, 0)
    assert sources(second) == (8, 16, 8)
    driver.check_outputs(first, second)


def test_a_load_that_fails_is_computed() -> None:
    driver = driver_after(PROMPT)
    request = Request("it", PROMPT, 3)
    driver.scheduler.add(request)
    assert driver.scheduler.schedule() is None
    driver.tier.finish(2)
    driver.tier.kept.clear()
    driver.run()
    assert sources(request) == (0, 0, 0)  # the window's blocks would have come last
    driver.check_outputs(request)


def test_one_that_is_given_up_while_it_is_loaded_for_leaves_nothing_behind() -> None:
    driver = driver_after(PROMPT)
    driver.scheduler.add(Request("it", PROMPT, 3))
    assert driver.scheduler.schedule() is None
    driver.scheduler.abort("it")
    driver.scheduler.check_invariants()
    assert not driver.scheduler.has_work
    driver.exchange()
    assert driver.manager.num_free_blocks == driver.num_blocks
    again = Request("again", PROMPT, 3)
    driver.run(again)
    assert sources(again) == (23, 0, 0)


def test_the_pool_keeps_room_for_the_first_chunk() -> None:
    least = KVCacheSpec((full_group(0), sliding_group(1, 6)), 4).blocks_per_sequence(28, 16)
    for num_blocks in range(least, least + 12):
        driver = driver_after(PROMPT, num_blocks=num_blocks)
        request = Request("it", (*PROMPT, 5, 6, 7), 1)
        driver.run(request)
        driver.check_outputs(request)
        assert sources(request).disk >= 16
        assert driver.runner.num_positions + sources(request).num_cached == 27


def test_a_second_plan_is_made_only_where_the_first_takes_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[LoadPlan | None] = []
    plan = Loads.plan

    def counted(self: Loads, *arguments: Any) -> LoadPlan | None:
        found.append(plan(self, *arguments))
        return found[-1]

    monkeypatch.setattr(Loads, "plan", counted)
    for num_blocks, count in ((64, 1), (24, 2)):  # of which another holds 8
        driver = driver_after(PROMPT, num_blocks=num_blocks)
        driver.scheduler.add(Request("other", (9,) * 12, 9))
        output = driver.scheduler.schedule()
        assert output is not None
        driver.update(output)
        found.clear()
        driver.scheduler.add(Request("it", (*PROMPT, *[5] * 16), 1))
        driver.scheduler.schedule()
        assert len(found) == count
