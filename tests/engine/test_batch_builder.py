from __future__ import annotations

import numpy as np
import pytest

from firstword.batch import CopySpan
from firstword.engine.batch_builder import build_batch, build_step
from firstword.engine.request import Request, Sequence
from firstword.engine.sequence_sampling import SequenceSampling
from firstword.engine.step import ScheduledSequence, SchedulerOutput, load_of
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.kvcache.tables import BlockCopy
from firstword.sampling.params import SamplingParams
from tests.fakes import Driver, full_group, sliding_group, state_group

Tables = tuple[tuple[int, ...], ...]


def sequence(name: str, prompt: range, n: int = 1) -> Sequence:
    return Request(name, tuple(prompt), max_tokens=8, n=n).sequences[0]


def item(
    owner: Sequence, start: int, num_tokens: int, tables: Tables, samples: tuple[int, ...] = ()
) -> ScheduledSequence:
    return ScheduledSequence(owner, start, num_tokens, samples, tables)


def output(*items: ScheduledSequence, copies: tuple[BlockCopy, ...] = ()) -> SchedulerOutput:
    return SchedulerOutput(1, 0.0, items, copies, (), (), load_of(items), 0.0)


def spec(*groups: KVGroup) -> KVCacheSpec:
    return KVCacheSpec(groups, block_size=4)


def test_chunks_of_all_kinds_lie_one_after_the_other() -> None:
    chunk = item(sequence("a", range(10, 20)), 2, 5, ((7, 5),))
    decode = item(sequence("b", range(20, 29)), 8, 1, ((1, 2, 3),), samples=(0,))
    whole = item(sequence("c", range(30, 33)), 0, 3, ((9,),), samples=(0,))
    batch = build_batch(output(chunk, decode, whole), spec(full_group()))
    assert batch.token_ids.tolist() == [12, 13, 14, 15, 16, 28, 30, 31, 32]
    assert batch.positions.tolist() == [2, 3, 4, 5, 6, 8, 0, 1, 2]
    assert batch.query_start_loc.tolist() == [0, 5, 6, 9]
    assert batch.seq_lens.tolist() == [7, 9, 3]
    assert batch.block_tables[0].tolist() == [[7, 5, -1], [1, 2, 3], [9, -1, -1]]
    assert batch.slot_mapping[0].tolist() == [30, 31, 20, 21, 22, 12, 36, 37, 38]
    assert batch.logits_indices.tolist() == [5, 8]
    arrays = [batch.token_ids, batch.positions, batch.query_start_loc, batch.seq_lens]
    arrays += [*batch.block_tables, *batch.slot_mapping, batch.logits_indices]
    assert {array.dtype for array in arrays} == {np.dtype(np.int32)}


def test_a_step_may_want_no_logits_at_all() -> None:
    batch = build_batch(output(item(sequence("a", range(9)), 0, 4, ((0,),))), spec(full_group()))
    assert batch.logits_indices.tolist() == []
    assert batch.logits_indices.dtype == np.int32


def test_blocks_left_behind_by_a_window_stay_empty() -> None:
    tables = ((4, 5, 6), (-1, 8, 9))
    batch = build_batch(
        output(item(sequence("a", range(11)), 9, 2, tables)),
        spec(full_group(), sliding_group(1, window=4)),
    )
    assert [table.tolist() for table in batch.block_tables] == [[[4, 5, 6]], [[-1, 8, 9]]]
    assert [slots.tolist() for slots in batch.slot_mapping] == [[25, 26], [37, 38]]


def test_a_position_without_a_block_is_a_bug_and_not_a_write_elsewhere() -> None:
    lost = output(item(sequence("a", range(11)), 2, 1, ((-1, 8, 9),)))
    with pytest.raises(AssertionError, match="no block"):
        build_batch(lost, spec(sliding_group(0, window=4)))


def test_a_state_group_has_one_block_per_sequence() -> None:
    a = item(sequence("a", range(10)), 6, 3, ((1, 2, 3), (7,)))
    b = item(sequence("b", range(10)), 0, 1, ((4,), (5,)))
    batch = build_batch(output(a, b), spec(full_group(), state_group(1, 4)))
    assert batch.block_tables[1].tolist() == [[7], [5]]
    assert batch.slot_mapping[1].tolist() == [28, 28, 28, 20]


def test_copies_are_passed_on_in_order() -> None:
    copies = (BlockCopy(1, 2, 3, 0), BlockCopy(4, 5, 4, 0))
    batch = build_batch(
        output(item(sequence("a", range(4)), 0, 1, ((2,),)), copies=copies), spec(full_group())
    )
    assert batch.block_copies == (CopySpan(1, 2, 3), CopySpan(4, 5, 4))


def sampling_of(owner: Sequence, params: SamplingParams) -> list[SequenceSampling]:
    return [SequenceSampling(sample, params) for sample in owner.request.sequences]


def test_several_samples_start_from_one_row() -> None:
    first = item(sequence("a", range(5), n=3), 0, 5, ((0, 1),), samples=(0, 1, 2))
    second = item(sequence("b", range(2)), 1, 1, ((2,),), samples=(0,))
    sampling = {
        "a": sampling_of(first.sequence, SamplingParams(seed=5, n=3)),
        "b": sampling_of(second.sequence, SamplingParams(seed=6)),
    }
    step = build_step(output(first, second), spec(full_group()), sampling)
    assert step.batch.logits_indices.tolist() == [4, 4, 4, 5]
    assert [(r.seed, r.sample_index, r.position) for r in step.sampling] == [
        (5, 0, 5),
        (5, 1, 5),
        (5, 2, 5),
        (6, 0, 2),
    ]


def test_every_row_asks_for_enough_candidates() -> None:
    owner = sequence("a", range(5))
    one = output(item(owner, 4, 1, ((0, 1),), samples=(0,)))
    sampling = {"a": sampling_of(owner, SamplingParams(seed=1, logprobs=3))}
    for wanted, expected in ((0, 3), (2, 3), (5, 5)):
        step = build_step(one, spec(full_group()), sampling, num_candidates=wanted)
        assert step.sampling[0].num_top_logprobs == expected


def test_what_a_scheduler_makes_is_consistent() -> None:
    """Every position once, in a block of its own sequence, whatever the scheduler mixes."""
    driver = Driver((full_group(), sliding_group(1, 6)), max_num_batched_tokens=7)
    for i in range(5):
        request = Request(f"r{i}", tuple(range(i, 3 * i + 4)), max_tokens=6, n=1 + i % 2)
        driver.scheduler.add(request)
    while driver.scheduler.has_work:
        decided = driver.scheduler.schedule()
        assert decided is not None
        batch = build_batch(decided, driver.spec)
        assert batch.num_tokens == decided.num_tokens == batch.query_start_loc[-1]
        for i, part in enumerate(decided.scheduled):
            rows = batch.rows_of(i)
            at = batch.positions[rows]
            assert [part.sequence.token_ids[p] for p in at] == batch.token_ids[rows].tolist()
            assert at[-1] + 1 == batch.seq_lens[i]
            for table, slots in zip(batch.block_tables, batch.slot_mapping, strict=True):
                assert (table[i, at // 4] == slots[rows] // 4).all()
                assert (slots[rows] % 4 == at % 4).all()
        for slots in batch.slot_mapping:
            assert len(set(slots.tolist())) == len(slots)
            assert (slots >= 0).all()
        driver.scheduler.update(decided, driver.runner.run(decided))
