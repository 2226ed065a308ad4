"""Whose tokens a step gave, and each as it leaves the engine.

Not here: how tokens are chosen (sampling) and what they lead to (scheduler).
"""

from __future__ import annotations

from collections.abc import Collection

from firstword.batch import SampledToken
from firstword.engine.outputs import SequenceOutput
from firstword.engine.request import Sequence
from firstword.engine.step import SchedulerOutput, SequenceUpdate

SampleKey = tuple[str, int]
"""Request id and sample index."""


def key_of(sequence: Sequence) -> SampleKey:
    """What its tokens are filed under."""
    return sequence.request.request_id, sequence.index


def sampled_keys(output: SchedulerOutput) -> list[SampleKey]:
    """Whose token each logits row becomes, in the order of the rows."""
    return [
        (item.sequence.request.request_id, index)
        for item in output.scheduled
        for index in item.samples
    ]


def output_of(
    update: SequenceUpdate, token: SampledToken, eos_token_ids: Collection[int]
) -> SequenceOutput:
    """A new token as the layers above see it.

    Args:
        update: whose token it is, and whether it was the last.
        token: the token.
        eos_token_ids: the model's own ends, which are not named as what stopped a sequence.
    """
    sequence, stop = update.sequence, update.sequence.stop_reason
    return SequenceOutput(
        request_id=sequence.request.request_id,
        sample_index=sequence.index,
        token_id=token.token_id,
        logprob=token.logprob,
        candidates=token.candidates,
        finish_reason=sequence.finish_reason if update.finished else None,
        stop_reason=None if stop in eos_token_ids else stop,
        probability=token.probability,
        ended_by_token=update.finished and stop is not None,
    )
