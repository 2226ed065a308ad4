from __future__ import annotations

from dataclasses import replace

import pytest

from firstword.errors import CapacityError
from firstword.kvcache.spec import KVCacheSpec, KVGroup, split_evenly
from firstword.plan.memory import RESERVE_BYTES, PoolRequest, ProcessBudget, plan_pool

FULL = KVCacheSpec((KVGroup("full", "full", (0, 1), num_kv_heads=2, head_dim=64),))
MIXED = KVCacheSpec(
    split_evenly(
        (
            KVGroup("full", "full", (0,), num_kv_heads=2, head_dim=64),
            KVGroup("sliding", "sliding", (1, 2), num_kv_heads=2, head_dim=64, window=64),
        )
    )
)
REQUEST = PoolRequest(
    model_context=8192,
    max_model_len=None,
    max_num_seqs=4,
    num_step_tokens=512,
    memory_bytes=None,
    free_bytes=2**30,
)


def test_a_roomy_machine_gets_what_its_sequences_can_use_and_no_more() -> None:
    plan = plan_pool(FULL, REQUEST)
    assert plan.num_blocks == 4 * 8192 // 32
    assert plan.num_bytes == plan.num_blocks * FULL.page_bytes
    assert plan.max_model_len == 8192
    assert plan.notice == ""


def test_p13_bytes_that_were_asked_for_are_never_exceeded() -> None:
    plan = plan_pool(FULL, replace(REQUEST, memory_bytes=10_000_000))
    assert plan.num_bytes <= 10_000_000
    assert plan.num_bytes > 10_000_000 - FULL.page_bytes


def test_p12_a_model_context_that_does_not_fit_is_cut_and_said() -> None:
    free = 2 * FULL.page_bytes * 100  # half of it: 100 blocks
    plan = plan_pool(FULL, replace(REQUEST, free_bytes=free))
    assert plan.max_model_len == 3200
    assert "3200 tokens instead of the model's 8192" in plan.notice


def test_p12_a_context_asked_for_that_does_not_fit_is_refused_with_the_nearest() -> None:
    free = 2 * FULL.page_bytes * 100
    with pytest.raises(CapacityError, match="longest that fits is 3200 tokens"):
        plan_pool(FULL, replace(REQUEST, max_model_len=8192, free_bytes=free))


def test_no_room_at_all_is_refused() -> None:
    with pytest.raises(CapacityError, match="0 tokens"):
        plan_pool(FULL, replace(REQUEST, free_bytes=0))


def test_the_longest_context_of_mixed_groups_fits_and_one_more_block_does_not() -> None:
    memory = MIXED.page_bytes * 150
    plan = plan_pool(MIXED, replace(REQUEST, memory_bytes=memory))
    longest = plan.max_model_len
    assert MIXED.blocks_per_sequence(longest, min(512, longest)) <= 150
    assert MIXED.blocks_per_sequence(longest + 32, min(512, longest + 32)) > 150


def test_asking_for_more_than_the_model_has_gives_the_models_own() -> None:
    assert plan_pool(FULL, replace(REQUEST, max_model_len=10**6)).max_model_len == 8192


def test_p13_the_pool_gets_what_the_budget_leaves() -> None:
    budget = ProcessBudget(RESERVE_BYTES + 1_000, taken_bytes=300, promised_bytes=200)
    assert budget.pool_bytes() == 500


def test_a_budget_without_room_is_refused_with_the_least_that_would_do() -> None:
    budget = ProcessBudget(1_000, taken_bytes=300, promised_bytes=800)
    with pytest.raises(CapacityError, match=f"give more than {RESERVE_BYTES + 1_100:,} bytes"):
        budget.pool_bytes()


def test_the_summary_says_how_many_users_fit_and_why() -> None:
    memory = FULL.page_bytes * 128 * 6  # six users of 4,096 tokens
    plan = plan_pool(FULL, replace(REQUEST, max_num_seqs=64, memory_bytes=memory, reason="so"))
    assert plan.summary == (
        "keys and values: 25 MB (so), room for 6 users of 4,096 tokens, or 3 users of 8,192 tokens"
    )
    one = plan_pool(FULL, replace(REQUEST, max_model_len=100, max_num_seqs=1))
    assert one.summary.endswith("room for 1 user of 100 tokens")
