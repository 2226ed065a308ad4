"""A step in the making: what it charges and what it becomes."""

from __future__ import annotations

from math import inf

from firstword.engine.draft import StepDraft
from firstword.engine.policy import Budget
from firstword.engine.request import Request
from firstword.engine.shares import KeyShares
from firstword.engine.step import StepLoad, StepTime
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.prefix_cache import PrefixHit
from firstword.kvcache.sources import CacheMiss, PromptSources
from firstword.kvcache.spec import KVCacheSpec
from tests.fakes import Driver, full_group


def test_what_goes_in_is_charged_and_comes_out() -> None:
    manager = KVCacheManager(KVCacheSpec((full_group(),), 4), 8)
    shares = KeyShares()
    request = Request("a", tuple(range(6)), 3, n=2, key="k")
    shares.join("k")
    before = shares.used("k")
    draft = StepDraft(Budget(StepTime(1, 2, 0.5, 4), 16, inf, manager), shares)
    assert manager.admit(request.sequences[0], 6, PrefixHit())
    draft.include(request.sequences[0], 6)
    output = draft.output(7, 1.5, [])
    assert shares.used("k") - before == 6
    assert (output.step, output.time, output.num_tokens) == (7, 1.5, 6)
    assert output.scheduled[0].samples == (0, 1)
    assert output.load == StepLoad(num_tokens=6, num_pairs=21, num_samples=2)
    assert output.predicted_ms == 1 + 2 * 6 + 0.5 * 21 + 4 * 2


def test_who_waits_is_admitted_behind_what_the_cache_gives_as_far_as_budget_and_blocks_go() -> None:
    manager = KVCacheManager(KVCacheSpec((full_group(),), 4), 2)
    shares = KeyShares()
    draft = StepDraft(Budget(StepTime(ms_per_token=1), 16, 5, manager), shares)
    first, second, third = (Request(name, tuple(range(6)), 3) for name in "abc")
    for request in (first, second, third):
        shares.join(request.key)
    assert draft.admit(first.sequences[0], PrefixHit())
    assert draft.scheduled == [(first.sequences[0], 5)]  # of a budget of 5 ms
    assert draft.prefix_hits == [(first.sequences[0], PrefixHit())]
    assert not draft.admit(second.sequences[0], PrefixHit())  # the budget is used up
    draft.budget.ms = 5
    assert not draft.admit(third.sequences[0], PrefixHit())  # the pool is
    assert len(draft.scheduled) == 1
    assert manager.holders == {first.sequences[0]}


def test_the_first_of_a_step_gets_a_token_though_the_budget_is_none() -> None:
    manager = KVCacheManager(KVCacheSpec((full_group(),), 4), 8)
    shares = KeyShares()
    draft = StepDraft(Budget(StepTime(ms_per_token=1), 16, -1, manager), shares)
    request = Request("a", tuple(range(6)), 3)
    shares.join(request.key)
    assert draft.admit(request.sequences[0], PrefixHit())
    assert draft.scheduled == [(request.sequences[0], 1)]


def test_who_is_admitted_is_told_what_it_reuses_and_what_it_missed() -> None:
    driver = Driver(num_blocks=2)
    driver.run(Request("a", (1, 2, 3, 4, 5, 6, 7), 1))
    again = Request("b", (1, 2, 3, 4, 9, 9, 9), 1)
    driver.run(again)
    (sequence,) = again.sequences
    assert sequence.sources == PromptSources(memory=4)
    # Its own block took the place of the text that it differs from: it was compared before that.
    assert sequence.miss == CacheMiss("different_text", 4, 3, (9, 9, 9), (5, 6, 7))


def test_a_request_with_a_key_is_not_told_what_may_be_the_text_of_another() -> None:
    driver = Driver()
    driver.run(Request("a", (1, 2, 3, 4), 1, key="anna"))
    other = Request("b", (1, 3, 3, 4), 1, key="ben")
    driver.run(other)
    assert other.sequences[0].miss == CacheMiss("different_text", 1, 3, (3, 3, 4), ())


def test_what_a_preempted_sequence_finds_later_does_not_change_what_it_first_missed() -> None:
    driver = Driver(num_blocks=6)
    driver.run(Request("before", (1, 2, 3, 4), 1))
    first, second = (Request(n, (1, 2, x, 4, 5, 6), 8) for n, x in (("a", 9), ("b", 8)))
    driver.scheduler.add(first)
    driver.scheduler.add(second)
    seen: dict[str, tuple[PromptSources, CacheMiss | None]] = {}
    while driver.scheduler.has_work:
        driver.step()
        for request in (first, second):
            (sequence,) = request.sequences
            if sequence.has_run:
                told = seen.setdefault(request.request_id, (sequence.sources, sequence.miss))
                assert told == (sequence.sources, sequence.miss)
    assert first.sequences[0].num_preemptions + second.sequences[0].num_preemptions > 0
