from __future__ import annotations

import random
from itertools import islice, pairwise

import pytest

from firstword.bench.serving.prompts import WORDS, PromptMaker, Sizer
from firstword.bench.serving.workloads import (
    WORKLOADS,
    ClosedLoop,
    OpenLoop,
    Phase,
    Sizes,
    Traffic,
)


def phases(workload: str, sizes: Sizes) -> list[Phase]:
    return WORKLOADS[workload](sizes, PromptMaker(Sizer(WORDS, 10), sizes.seed))


def only(workload: str, sizes: Sizes) -> Traffic:
    """The traffic of a workload that has but one kind."""
    (phase,) = phases(workload, sizes)
    (traffic,) = phase.traffic
    return traffic


def test_arrivals_are_poisson_and_seeded() -> None:
    arrivals = list(islice(OpenLoop(rate=4, seed=7).arrivals(), 4000))
    assert arrivals == list(islice(OpenLoop(4, 7).arrivals(), 4000))
    assert arrivals != list(islice(OpenLoop(4, 8).arrivals(), 4000))
    assert arrivals[0] == random.Random(7).expovariate(4)
    gaps = [b - a for a, b in pairwise(arrivals)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(1 / 4, rel=0.05)
    assert variance == pytest.approx(mean**2, rel=0.15)  # as of an exponential distribution


def test_a_rate_makes_the_loop_open() -> None:
    assert Sizes(concurrency=3).arrival == ClosedLoop(3)
    assert Sizes(rate=2.5, seed=4).arrival == OpenLoop(2.5, 4)


def test_distinct_prompts_have_the_length_asked_for() -> None:
    traffic = only("distinct", Sizes(requests=5, input_tokens=40, output_tokens=8))
    said = [conversation.turns for conversation in traffic.conversations]
    assert len(set(said)) == 5
    assert all(len(turns) == 1 and len(turns[0].split()) == 1 + 30 for turns in said)
    assert all(conversation.max_tokens == 8 for conversation in traffic.conversations)


def test_a_prefix_is_shared_and_tails_are_not() -> None:
    sizes = Sizes(requests=4, input_tokens=20, prefix_tokens=100)
    words = [c.turns[0].split() for c in only("shared-prefix", sizes).conversations]
    assert len({tuple(text[:91]) for text in words}) == 1
    assert len({tuple(text[91:]) for text in words}) == 4
    assert all(len(text) == 91 + 20 for text in words)


def test_turns_are_counted_over_conversations() -> None:
    traffic = only("multi-turn", Sizes(requests=10, turns=4))
    assert [len(conversation.turns) for conversation in traffic.conversations] == [4, 4, 2]


def test_the_long_prompt_comes_beside_chats_that_last() -> None:
    chats, alone, both = phases("long-prompt", Sizes(requests=6, concurrency=8, long_tokens=500))
    assert [traffic.group for traffic in chats.traffic] == ["chats alone"]
    assert len(list(chats.traffic[0].conversations)) == 6
    assert [traffic.group for traffic in alone.traffic] == ["long alone"]
    beside, late = both.traffic
    assert beside.background and beside.arrival == ClosedLoop(8)
    assert not late.background and late.delay > 0
    (long,) = late.conversations
    assert len(long.turns[0].split()) == 1 + 490
    assert long not in alone.traffic[0].conversations


def test_the_second_key_floods() -> None:
    alone, both = phases("two-keys", Sizes(requests=3, concurrency=32))
    assert [conversation.key for conversation in alone.traffic[0].conversations] == [0, 0, 0]
    flood, beside = both.traffic
    assert flood.background and flood.arrival == ClosedLoop(32)
    assert {conversation.key for conversation in islice(flood.conversations, 50)} == {1}
    assert beside.arrival == ClosedLoop(1)
    assert [conversation.key for conversation in beside.conversations] == [0, 0, 0]


def test_some_stay_and_some_leave() -> None:
    (phase,) = phases("leaving", Sizes(requests=3, leave_seconds=0.5))
    staying, gone = phase.traffic
    assert [conversation.leave_after for conversation in staying.conversations] == [None] * 3
    times = [conversation.leave_after for conversation in islice(gone.conversations, 100)]
    assert gone.background
    assert all(time is not None and 0 <= time <= 0.5 for time in times) and len(set(times)) == 100
