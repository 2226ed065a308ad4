"""From the scheduler's decision, a plain value, to the arrays of one step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from firstword.batch import CopySpan, ForwardBatch, Int32Array, SamplingRow, StepInput
from firstword.engine.request import Sequence
from firstword.engine.step import ScheduledSequence, SchedulerOutput
from firstword.kvcache.spec import KVCacheSpec
from firstword.sampling.params import SamplingParams


def build_step(
    output: SchedulerOutput,
    spec: KVCacheSpec,
    params: Mapping[str, SamplingParams],
    num_candidates: int = 0,
) -> StepInput:
    """One step's input.

    Args:
        output: what the scheduler decided.
        spec: the KV groups.
        params: sampling parameters, seed resolved, by request id.
        num_candidates: least number of candidates recorded with every token.
    """
    rows: list[SamplingRow] = []
    for item in output.scheduled:
        request_params = params[item.sequence.request.request_id]
        rows += [
            _sampling_row(item.sequence, index, request_params, num_candidates)
            for index in item.samples
        ]
    return StepInput(build_batch(output, spec), tuple(rows))


def build_batch(output: SchedulerOutput, spec: KVCacheSpec) -> ForwardBatch:
    """The flat batch: every scheduled sequence's positions, one after the other."""
    scheduled = output.scheduled
    lengths = [item.num_tokens for item in scheduled]
    start_loc = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)  # [N + 1]
    positions = np.concatenate(
        [np.arange(i.start, i.start + i.num_tokens, dtype=np.int32) for i in scheduled]
    )
    token_ids = np.concatenate([_token_ids(item) for item in scheduled])
    tables = tuple(
        _pad([item.block_tables[group] for item in scheduled]) for group in range(len(spec.groups))
    )
    slots = tuple(
        _slots(positions, lengths, table, spec.block_size, group.kind == "state")
        for table, group in zip(tables, spec.groups, strict=True)
    )
    last_rows = [
        row
        for item, end in zip(scheduled, start_loc[1:], strict=True)
        for row in [int(end) - 1] * len(item.samples)
    ]
    return ForwardBatch(
        token_ids=token_ids,
        positions=positions,
        query_start_loc=start_loc,
        seq_lens=np.array([i.start + i.num_tokens for i in scheduled], np.int32),
        block_tables=tables,
        slot_mapping=slots,
        logits_indices=np.array(last_rows, np.int32),
        block_copies=tuple(CopySpan(c.source, c.destination, c.count) for c in output.block_copies),
    )


def _token_ids(item: ScheduledSequence) -> Int32Array:
    ids = item.sequence.token_ids[item.start : item.start + item.num_tokens]
    return np.array(ids, np.int32)


def _pad(tables: list[tuple[int, ...]]) -> Int32Array:
    """Block tables of different lengths as one array [N, B], -1 where there is no block."""
    width = max((len(table) for table in tables), default=0)
    padded = np.full((len(tables), width), -1, np.int32)
    for row, table in zip(padded, tables, strict=True):
        row[: len(table)] = table
    return padded


def _slots(
    positions: Int32Array, lengths: list[int], table: Int32Array, block_size: int, state: bool
) -> Int32Array:
    """Slot of every position [T]; a state group has one block per sequence and no slots in it."""
    sequence = np.repeat(np.arange(len(lengths)), lengths)  # [T]
    if state:
        return np.asarray(table[sequence, 0] * block_size, np.int32)
    block = table[sequence, positions // block_size]  # [T]
    assert (block >= 0).all(), "a position to compute has no block"
    return np.asarray(block * block_size + positions % block_size, np.int32)


def _sampling_row(
    sequence: Sequence, sample_index: int, params: SamplingParams, num_candidates: int
) -> SamplingRow:
    request = sequence.request
    too_early = sequence.num_output_tokens < request.min_tokens
    assert params.seed is not None  # the engine resolves it before the request is queued
    return SamplingRow(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        seed=params.seed,
        position=sequence.num_tokens,
        sample_index=sample_index,
        banned_token_ids=tuple(sorted(request.stop_token_ids)) if too_early else (),
        logit_bias=tuple(sorted(params.logit_bias.items())),
        num_top_logprobs=max(params.logprobs or 0, num_candidates),
    )
