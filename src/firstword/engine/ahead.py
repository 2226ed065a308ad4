"""The step after the one under way, chosen while the tokens of that one are not known yet.

Not here: the step's place among the others (scheduler) and when the runner is given it (pipeline).

It can be chosen where each sequence of the step under way gets one token and decodes on, as in most
steps when nobody waits. A sequence that turns out to have ended was computed for nothing; one that
is certain to end, by its length, is left out.
"""

from __future__ import annotations

from firstword.engine.step import ScheduledSequence, SchedulerOutput, StepTime, load_of
from firstword.kvcache.manager import KVCacheManager


def next_decodes(
    before: SchedulerOutput, manager: KVCacheManager, max_model_len: int
) -> tuple[ScheduledSequence, ...]:
    """What the sequences of a step under way compute next; their blocks are allocated.

    Args:
        before: the step under way.
        manager: gives out the blocks.
        max_model_len: tokens that the context holds.

    Returns:
        Nothing where the tokens have to be known first, a block lacks, or nobody goes on.
    """
    going_on: list[ScheduledSequence] = []
    for item in before.scheduled:
        sequence, start = item.sequence, item.start + item.num_tokens
        if sequence.is_finished:
            continue
        if item.samples != (sequence.index,):  # it still reads its prompt, or is forked
            return ()
        if sequence.ends_with_next_token(max_model_len):
            continue
        if not manager.allocate(sequence, 1, start):
            return ()
        tables = manager.block_tables(sequence)
        going_on.append(ScheduledSequence(sequence, start, 1, item.samples, tables))
    return tuple(going_on)


def plain_step(
    number: int, time: float, scheduled: tuple[ScheduledSequence, ...], step_time: StepTime
) -> SchedulerOutput:
    """A step on the way to which nothing happened: nobody began in it or lost its blocks.

    Args:
        number: of the step.
        time: seconds on the scheduler's clock.
        scheduled: what is computed.
        step_time: predicts its milliseconds.
    """
    load = load_of(scheduled)
    return SchedulerOutput(
        step=number,
        time=time,
        scheduled=scheduled,
        block_copies=(),
        preemptions=(),
        prefix_hits=(),
        load=load,
        predicted_ms=step_time.total(load),
    )
