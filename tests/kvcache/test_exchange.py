"""Between pool and tier: what is offered, what is announced while it is loaded."""

from __future__ import annotations

from firstword.kvcache.manager import KVCacheManager
from firstword.kvcache.spec import KVCacheSpec
from tests.fakes import FakeRunner, FakeSequence, FakeTier, full_group, state_group

SPEC = KVCacheSpec((full_group(),), 4)
TOKENS = list(range(100, 112))


def manager_with_tier() -> tuple[KVCacheManager, FakeTier]:
    tier = FakeTier(FakeRunner(SPEC))
    return KVCacheManager(SPEC, 16, tier=tier), tier


def compute(manager: KVCacheManager, sequence: FakeSequence) -> None:
    """Let a sequence be computed to its end, and go."""
    assert manager.admit(sequence, len(sequence.token_ids), manager.match_prefix(sequence))
    manager.end_step()
    sequence.num_computed_tokens = len(sequence.token_ids)
    manager.commit(sequence)
    manager.free(sequence)


def exchange(manager: KVCacheManager) -> None:
    assert manager.exchange is not None
    manager.exchange.take_in()
    manager.exchange.save()


def test_full_blocks_are_kept_as_soon_as_they_are_computed() -> None:
    manager, tier = manager_with_tier()
    compute(manager, FakeSequence([*TOKENS, 1]))
    exchange(manager)
    assert [name.token_ids for name, _ in tier.kept.values()] == [
        tuple(TOKENS[i : i + 4]) for i in (0, 4, 8)
    ]


def test_what_may_not_be_kept_is_not_and_is_kept_when_another_uses_it() -> None:
    manager, tier = manager_with_tier()
    compute(manager, FakeSequence([*TOKENS, 1], is_kept=False))
    exchange(manager)
    assert not tier.kept
    compute(manager, FakeSequence([*TOKENS, 2]))
    exchange(manager)
    assert len(tier.kept) == 3


def test_others_wait_for_blocks_that_are_being_loaded() -> None:
    manager, tier = manager_with_tier()
    compute(manager, FakeSequence([*TOKENS, 1]))
    exchange(manager)
    again = KVCacheManager(SPEC, 16, tier=tier)  # as after a restart
    assert again.exchange is not None
    first, second = FakeSequence([*TOKENS, 2]), FakeSequence([*TOKENS, 3])
    plan = again.exchange.plan_load(first, again.match_prefix(first), 0)
    assert plan is not None
    again.exchange.begin_load(first, plan)
    assert again.exchange.is_loading and again.exchange.is_loading_for(first)
    assert not again.exchange.is_loading_for(second)
    awaited = again.awaited_block(second)
    assert awaited is not None
    key, num_tokens = awaited
    assert num_tokens == 0 and again.author(key) is not None
    again.check_invariants()
    tier.finish()
    exchange(again)
    assert again.author(key) is None and again.awaited_block(second) is None
    assert again.match_prefix(second).num_tokens == 12
    again.check_invariants()


def test_a_plan_leaves_blocks_to_others() -> None:
    manager, tier = manager_with_tier()
    compute(manager, FakeSequence([*TOKENS, 1]))
    exchange(manager)
    again = KVCacheManager(SPEC, 5, tier=tier)
    assert again.exchange is not None
    sequence = FakeSequence([*TOKENS, 2])
    for num_spare, num_tokens in ((0, 12), (1, 12), (2, 12), (3, 8), (5, None)):
        plan = again.exchange.plan_load(sequence, again.match_prefix(sequence), num_spare)
        assert (plan and plan.num_tokens) == num_tokens, num_spare


def test_states_are_not_kept() -> None:
    spec = KVCacheSpec((full_group(0), state_group(1, 8)), 4)
    manager = KVCacheManager(spec, 16, tier=FakeTier(FakeRunner(spec)))
    assert manager.exchange is None
