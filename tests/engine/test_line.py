"""The order in which waiting sequences start."""

from __future__ import annotations

from firstword.engine.line import WaitingLine
from firstword.engine.request import Request, Sequence
from firstword.engine.shares import KeyShares
from firstword.engine.step import StepTime
from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.spec import KVCacheSpec
from tests.fakes import full_group

MS_PER_TOKEN = StepTime(ms_per_token=1)


class Rig:
    """A line with everything it asks."""

    def __init__(self, step_time: StepTime = MS_PER_TOKEN) -> None:
        self.manager = KVCacheManager(KVCacheSpec((full_group(),), 4), 64)
        self.shares = KeyShares()
        self.line = WaitingLine(self.manager, self.shares, step_time)

    def add(self, name: str, num_tokens: int, **options: object) -> Sequence:
        first = 1000 * len(self.line)
        prompt = tuple(range(first, first + num_tokens))
        request = Request(name, prompt, 1, **options)  # type: ignore[arg-type]
        self.shares.join(request.key)
        self.line.add(request.sequences[0])
        return request.sequences[0]

    def order(self, now: float = 0.0) -> list[str]:
        return [s.request.request_id for s in self.line.in_order(now, ())]


def test_without_a_prediction_the_first_comes_first() -> None:
    rig = Rig(StepTime())
    rig.add("late", 1, arrival_time=2)
    rig.add("early", 50, arrival_time=1)
    assert rig.order(3) == ["early", "late"]


def test_the_line_is_by_priority_then_by_having_run_then_by_ratio() -> None:
    rig = Rig()
    rig.add("long", 50)
    rig.add("short", 5)
    rig.add("urgent", 60, priority=1)
    resumed = rig.add("resumed", 60)
    resumed.preempt()
    assert rig.order(1) == ["urgent", "resumed", "short", "long"]


def test_a_short_one_passes_a_long_one_but_not_for_ever() -> None:
    rig = Rig()
    rig.add("long", 99, arrival_time=0)
    rig.add("short", 9, arrival_time=1)
    assert rig.order(1.0) == ["long", "short"]  # ratios 11 and 1
    assert rig.order(1.2) == ["short", "long"]  # 13 and 21
    rig.add("new", 9, arrival_time=10)
    assert rig.order(10.5).index("long") < rig.order(10.5).index("new")


def test_only_what_is_not_cached_counts() -> None:
    rig = Rig()
    cached = rig.add("cached", 40)
    rig.line.remove(cached)
    assert rig.manager.admit(cached, 40, rig.manager.match_prefix(cached))
    cached.num_computed_tokens = 40
    rig.manager.commit(cached)
    rig.line.add(cached)
    rig.add("short", 9)
    assert rig.line.num_uncached(cached) == 1
    assert rig.order(1) == ["cached", "short"]


def test_what_the_cache_gained_since_is_seen_after_a_few_steps() -> None:
    rig = Rig()
    waiting = rig.add("waiting", 40)
    other = Request("other", waiting.request.prompt_token_ids, 1).sequences[0]
    assert rig.manager.admit(other, 40, rig.manager.match_prefix(other))
    other.num_computed_tokens = 40
    rig.manager.commit(other)
    assert rig.line.num_uncached(waiting) == 40
    rig.order()
    assert rig.line.num_uncached(waiting) == 1


def test_keys_take_turns_by_what_they_have_used() -> None:
    rig = Rig()
    for i in range(3):
        rig.add(f"a{i}", 5, key="a", arrival_time=i)
    rig.add("b", 50, key="b", arrival_time=9)
    rig.shares.charge("a", 10)
    assert rig.order(10)[0] == "b"
    order = []
    for sequence in rig.line.in_order(10, ()):
        order.append(sequence.request.request_id)
        rig.shares.charge(sequence.request.key, 8)
    assert order == ["b", "a0", "a1", "a2"]
    rig.shares.charge("b", 100)
    assert rig.order(10)[0] == "a0"


def test_one_whose_block_another_computes_waits_for_it() -> None:
    rig = Rig()
    author = rig.add("author", 20)
    rig.line.remove(author)
    follower = rig.add("follower", 20)
    assert not rig.line.awaits_block(follower)
    assert rig.manager.admit(author, 8, rig.manager.match_prefix(author))
    assert rig.line.awaits_block(follower)
    assert (rig.line.num_ready, rig.line.shortest()) == (0, None)
    author.num_computed_tokens = 8
    rig.manager.commit(author)
    assert rig.line.awaits_block(follower)
    rig.manager.free(author)
    assert not rig.line.awaits_block(follower)
    assert (rig.line.num_ready, rig.line.shortest()) == (1, 20)


def test_nobody_waits_for_one_of_lower_priority() -> None:
    rig = Rig()
    author = rig.add("author", 20)
    rig.line.remove(author)
    assert rig.manager.admit(author, 8, rig.manager.match_prefix(author))
    assert not rig.line.awaits_block(rig.add("urgent", 20, priority=1))
