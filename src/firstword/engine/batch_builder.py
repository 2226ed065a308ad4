"""From the scheduler's decision, a plain value, to the arrays of one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from firstword.batch import CopySpan, ForwardBatch, Int32Array, SamplingRow, StepInput
from firstword.engine.sequence_sampling import SequenceSampling
from firstword.engine.step import SchedulerOutput
from firstword.kvcache.spec import KVCacheSpec


def build_step(
    output: SchedulerOutput,
    spec: KVCacheSpec,
    sampling: Mapping[str, Sequence[SequenceSampling]],
    num_candidates: int = 0,
) -> StepInput:
    """One step's input.

    Args:
        output: what the scheduler decided.
        spec: the KV groups.
        sampling: how tokens are chosen, by request id, one for each of its samples.
        num_candidates: least number of candidates recorded with every token.
    """
    rows: list[SamplingRow] = []
    for item in output.scheduled:
        samples = sampling[item.sequence.request.request_id]
        rows += [samples[index].row(num_candidates) for index in item.samples]
    return StepInput(build_batch(output, spec), tuple(rows))


def build_step_ahead(
    output: SchedulerOutput,
    before: SchedulerOutput,
    spec: KVCacheSpec,
    sampling: Mapping[str, Sequence[SequenceSampling]],
    num_candidates: int = 0,
) -> StepInput:
    """The input of a step whose tokens the step before is about to give.

    Args:
        output: what `Scheduler.schedule_ahead` decided.
        before: the step under way; each of its sequences has one row of logits.
        spec: the KV groups.
        sampling: as for `build_step`; none depends on tokens.
        num_candidates: as for `build_step`.
    """
    rows = {item.sequence: row for row, item in enumerate(before.scheduled)}
    batch = build_batch(output, spec, [-rows[item.sequence] - 1 for item in output.scheduled])
    strategies = [
        sampling[item.sequence.request.request_id][item.sequence.index].row(num_candidates, 1)
        for item in output.scheduled
    ]
    return StepInput(batch, tuple(strategies))


def build_batch(
    output: SchedulerOutput, spec: KVCacheSpec, token_ids: list[int] | None = None
) -> ForwardBatch:
    """The flat batch: every scheduled sequence's positions, one after the other.

    Args:
        output: what the scheduler decided.
        spec: the KV groups.
        token_ids: [T] of all positions; None for those of the sequences.

    Lists, made arrays at the end: for the few rows of a decode step that is five times as fast as
    arrays all the way (150 us there are 4% of a step of a small model).
    """
    ids: list[int] = []
    positions: list[int] = []
    start_loc, seq_lens, last_rows = [0], [], []
    for item in output.scheduled:
        end = item.start + item.num_tokens
        ids += item.sequence.token_ids[item.start : end]
        positions += range(item.start, end)
        start_loc.append(len(positions))
        seq_lens.append(end)
        last_rows += [len(positions) - 1] * len(item.samples)
    groups = range(len(spec.groups))
    return ForwardBatch(
        token_ids=np.array(ids if token_ids is None else token_ids, np.int32),
        positions=np.array(positions, np.int32),
        query_start_loc=np.array(start_loc, np.int32),
        seq_lens=np.array(seq_lens, np.int32),
        block_tables=tuple(_pad([i.block_tables[g] for i in output.scheduled]) for g in groups),
        slot_mapping=tuple(_slots(output, spec, g) for g in groups),
        logits_indices=np.array(last_rows, np.int32),
        block_copies=tuple(CopySpan(c.source, c.destination, c.count) for c in output.block_copies),
    )


def _pad(tables: list[tuple[int, ...]]) -> Int32Array:
    """Block tables of different lengths as one array [N, B], -1 where there is no block."""
    width = max(map(len, tables), default=0)
    return np.array([(*t, *(-1,) * (width - len(t))) for t in tables], np.int32)


def _slots(output: SchedulerOutput, spec: KVCacheSpec, group: int) -> Int32Array:
    """Slot of every position [T]; a state group has one block per sequence and no slots in it."""
    size, is_state = spec.block_size, spec.groups[group].kind == "state"
    slots: list[int] = []
    for item in output.scheduled:
        table = item.block_tables[group]
        if is_state:
            slots += [table[0] * size] * item.num_tokens
        else:
            end = item.start + item.num_tokens
            slots += [table[p // size] * size + p % size for p in range(item.start, end)]
    assert min(slots, default=0) >= 0, "a position to compute has no block"
    return np.array(slots, np.int32)
