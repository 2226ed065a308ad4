"""What a load brings, what it holds meanwhile, and what is left of one that fails."""

from __future__ import annotations

import pytest

from firstword.kvcache.block_pool import NO_BLOCK, BlockContent, BlockPool
from firstword.kvcache.loads import MAX_TRIES, LoadPlan, Loads
from firstword.kvcache.prefix_cache import PrefixCache, PrefixHit
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from tests.fakes import FakeRunner, FakeSequence, FakeTier, full_group, sliding_group

TOKENS = list(range(100, 124))  # six blocks of four


class Setting:
    """A pool with nothing in it above a tier with some blocks."""

    def __init__(self, *groups: KVGroup, num_blocks: int = 64) -> None:
        self.spec = KVCacheSpec(groups or (full_group(),), 4)
        self.pool = BlockPool(num_blocks)
        self.cache = PrefixCache(self.spec, self.pool)
        self.tier = FakeTier(FakeRunner(self.spec))
        self.loads = Loads(self.spec, self.pool, self.cache, self.tier)

    def keep(self, *indices: int, tokens: list[int] = TOKENS) -> None:
        """Let the tier have full blocks of these tokens."""
        for index in indices:
            name = self.cache.name(FakeSequence(tokens), index)
            self.tier.kept[name.key] = (name, [{} for _ in self.spec.groups])

    def cached(self, group: int, *indices: int) -> list[int]:
        """Let the pool have full blocks of TOKENS in a group; returns them."""
        blocks = [self.pool.allocate() for _ in indices]
        for index, block in zip(indices, blocks, strict=True):
            self.cache.keep_block(group, FakeSequence(TOKENS), index, block)
        for block in reversed(blocks):
            self.pool.release(block)
        return blocks

    def plan(self, sequence: FakeSequence, num_free: int | None = None) -> LoadPlan | None:
        free = self.pool.num_free if num_free is None else num_free
        return self.loads.plan(sequence, self.cache.match(sequence), free)

    def load(self, sequence: FakeSequence, limit: int | None = None) -> PrefixHit:
        """Load all there is; what the pool has of the sequence then."""
        plan = self.plan(sequence)
        assert plan is not None
        self.loads.begin(sequence, plan)
        self.pool.check_invariants(self.loads.references)
        self.tier.finish(limit)
        self.loads.take_in()
        self.pool.check_invariants([])
        return self.cache.match(sequence)


def longer(num_tokens: int = len(TOKENS)) -> FakeSequence:
    return FakeSequence([*TOKENS[:num_tokens], 1, 2, 3])


def test_where_the_tier_has_nothing_there_is_nothing_to_load() -> None:
    it = Setting()
    assert it.plan(longer()) is None
    it.cached(0, 0, 1)
    assert it.plan(longer()) is None


def test_a_load_brings_what_the_pool_lacks() -> None:
    it = Setting()
    it.cached(0, 0, 1)
    it.keep(0, 1, 2, 3, 4)
    plan = it.plan(longer())
    assert plan is not None
    assert (plan.start, plan.num_tokens, plan.num_pages) == (8, 20, 3)
    assert [key for key in plan.chain] == it.cache.block_keys(longer(), 2, 5)
    assert it.load(longer()).num_tokens == 20


def test_blocks_behind_a_gap_are_of_no_use() -> None:
    it = Setting()
    it.keep(0, 2, 3)
    assert it.load(longer()).num_tokens == 4
    it.cached(0, 1)  # pool and tier together have the chain
    assert it.load(longer()).num_tokens == 16


@pytest.mark.parametrize("shared", [1, 2, 3])
def test_the_beginning_of_a_block_is_loaded_as_well(shared: int) -> None:
    it = Setting()
    it.keep(*range(6))
    hit = it.load(FakeSequence([*TOKENS[: 8 + shared], 1, 2, 3]))
    assert (hit.num_tokens, hit.num_copied_tokens) == (8 + shared, shared)


def test_all_tokens_but_the_last_are_loaded() -> None:
    it = Setting()
    it.keep(*range(6))
    assert it.load(FakeSequence(list(TOKENS))).num_tokens == 23
    assert it.plan(FakeSequence(list(TOKENS))) is None


def test_windows_load_only_what_they_need() -> None:
    it = Setting(full_group(0), sliding_group(1, 6))
    it.keep(*range(6))
    plan = it.plan(longer())
    assert plan is not None
    assert {name.token_ids[0]: groups for name, groups in plan.missing} == {
        100: (0,), 104: (0,), 108: (0,), 112: (0,), 116: (0, 1), 120: (0, 1)
    }  # fmt: skip
    assert it.load(longer()).num_tokens == 24


def test_a_window_that_lacks_a_block_ends_the_prefix_before_it() -> None:
    it = Setting(full_group(0), sliding_group(1, 6))
    it.cached(0, 0, 1, 2, 3, 4, 5)
    it.keep(0, 1, 2, 3, 5)  # no window that needs block 4
    assert it.load(longer()).num_tokens == 16


def test_only_windows_have_gone_from_the_pool() -> None:
    it = Setting(full_group(0), sliding_group(1, 6))
    it.cached(0, *range(6))
    it.keep(*range(6))
    plan = it.plan(longer())
    assert plan is not None
    assert plan.start == 0 and plan.num_pages == 2
    assert len(plan.chain) == 6 and len(plan.present) == 6
    assert it.load(longer()).num_tokens == 24


def test_a_load_takes_no_more_room_than_it_is_given() -> None:
    it = Setting()
    it.keep(*range(6))
    for num_free in range(8):
        plan = it.plan(longer(), num_free)
        assert plan is None or plan.num_pages <= num_free
    plan = it.plan(longer(), 4)
    assert plan is not None and plan.num_tokens >= 12


def test_blocks_of_the_prefix_that_are_in_the_pool_stay_there() -> None:
    it = Setting(num_blocks=6)
    present = it.cached(0, 0, 1)
    it.keep(2, 3)
    sequence = longer(16)
    plan = it.plan(sequence)
    assert plan is not None
    it.loads.begin(sequence, plan)
    assert set(present) <= set(it.loads.references)
    assert it.pool.num_free == 2
    for block in [it.pool.allocate() for _ in range(2)]:
        it.pool.release(block)
    it.tier.finish()
    it.loads.take_in()
    assert it.cache.match(sequence).num_tokens == 16


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_of_a_load_that_fails_what_came_is_used(limit: int) -> None:
    it = Setting()
    it.keep(*range(6))
    assert it.load(longer(), limit).num_tokens == 4 * limit


def test_what_fails_again_is_not_tried_for_ever() -> None:
    it = Setting()
    it.keep(*range(6))
    sequence = longer()
    for _ in range(MAX_TRIES):
        it.load(sequence, 0)
    assert it.plan(sequence) is None
    it.loads.forget(sequence)
    assert it.plan(sequence) is not None


def test_what_another_has_computed_meanwhile_is_not_cached_twice() -> None:
    it = Setting()
    it.keep(0, 1)
    sequence = longer(8)
    plan = it.plan(sequence)
    assert plan is not None
    it.loads.begin(sequence, plan)
    assert it.loads.is_loading(sequence) and len(it.loads) == 1
    (computed,) = it.cached(0, 0)
    it.tier.finish()
    assert [load.sequence for load in it.loads.take_in()] == [sequence]
    assert not it.loads.is_loading(sequence)
    hit = it.cache.match(sequence)
    assert hit.blocks[0][0] == computed and NO_BLOCK not in hit.blocks[0]
    it.pool.check_invariants([])


def test_a_tail_in_the_pool_counts_before_one_of_the_tier() -> None:
    it = Setting()
    it.cached(0, 0)
    tail = it.pool.allocate()
    parent = it.cache.key(FakeSequence(TOKENS), 0)
    it.pool.cache(tail, BlockContent(0, parent, tuple(TOKENS[4:7]), None))
    it.keep(1, tokens=[*TOKENS[:6], 9, 9])
    assert it.plan(longer(7)) is None
