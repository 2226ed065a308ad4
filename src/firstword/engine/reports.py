"""What the engine did, as typed events: plain functions from the step's values to trace.events.

Not here: when to report (engine) and what becomes of an event (trace.recorder).
"""

from __future__ import annotations

from dataclasses import dataclass

from firstword.batch import SampledToken, StepResult
from firstword.engine.request import Sequence
from firstword.engine.step import SchedulerOutput
from firstword.kvcache.spec import KVCacheSpec, kv_bytes
from firstword.ops.cost import Cost
from firstword.trace import events


def schedule_events(output: SchedulerOutput, now: float) -> list[events.Event]:
    """Preemptions and prefix hits on the way to a step."""
    preempted: list[events.Event] = [
        events.SequencePreempted(
            time=now,
            request_id=preemption.sequence.request.request_id,
            sample_index=preemption.sequence.index,
            num_lost_tokens=preemption.num_lost_tokens,
            reason=preemption.reason,
        )
        for preemption in output.preemptions
    ]
    matched = [
        events.PrefixMatched(
            time=now,
            request_id=sequence.request.request_id,
            sample_index=sequence.index,
            num_cached_tokens=hit.num_tokens,
            num_copied_tokens=hit.num_copied_tokens,
        )
        for sequence, hit in output.prefix_hits
    ]
    return preempted + matched


@dataclass(frozen=True)
class StepMeasures:
    """What was measured around a step.

    Args:
        start: when it began, seconds.
        end: when it ended, seconds.
        cost: its FLOPs and bytes.
        kv_bytes_in_use: bytes of the blocks in use afterwards.
    """

    start: float
    end: float
    cost: Cost
    kv_bytes_in_use: int


def step_event(
    output: SchedulerOutput, result: StepResult, measures: StepMeasures
) -> events.StepExecuted:
    """One forward pass with everyone in it."""
    cost = measures.cost
    return events.StepExecuted(
        time=measures.end,
        step=output.step,
        start=measures.start,
        chunks=tuple(
            events.ScheduledChunk(
                item.sequence.request.request_id, item.sequence.index, item.start, item.num_tokens
            )
            for item in output.scheduled
        ),
        forward_ms=result.forward_ms,
        sampling_ms=result.sampling_ms,
        flops=cost.flops,
        bytes_moved=cost.weight_bytes + cost.kv_bytes_read + cost.kv_bytes_written,
        num_attended=cost.attended,
        kv_bytes_in_use=measures.kv_bytes_in_use,
        predicted_ms=output.predicted_ms,
    )


def token_event(
    sequence: Sequence, step: int, token: SampledToken, now: float
) -> events.TokenSampled:
    """The token that a sequence has just got."""
    return events.TokenSampled(
        time=now,
        request_id=sequence.request.request_id,
        sample_index=sequence.index,
        step=step,
        position=sequence.num_tokens - 1,
        token_id=token.token_id,
        logprob=token.logprob,
        probability=token.probability,
        num_survivors=token.num_survivors,
        uniform=token.uniform,
        candidates=tuple(
            events.TokenCandidate(c.token_id, c.logprob, c.probability) for c in token.candidates
        ),
    )


def finished_event(
    sequence: Sequence, spec: KVCacheSpec, now: float, stop_string: str | None = None
) -> events.SequenceFinished:
    """The end of a sequence; `stop_string` is what its text ran into, if it did."""
    return events.SequenceFinished(
        time=now,
        request_id=sequence.request.request_id,
        sample_index=sequence.index,
        reason=str(sequence.finish_reason),
        stop_reason=sequence.stop_reason if stop_string is None else stop_string,
        num_output_tokens=sequence.num_output_tokens,
        kv_bytes=kv_bytes(spec, sequence.num_positions),
    )
