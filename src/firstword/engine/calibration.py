"""How long steps take on this machine, learned from the steps themselves.

The shape of the prediction comes from the model's cost (bytes of a step, FLOPs of a token, dot
products of attention, FLOPs of a row of logits); the scale of each follows what was measured. Not
here: what is done with a prediction (scheduler).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from firstword.batch import ForwardBatch
from firstword.engine.step import StepLoad, StepTime
from firstword.ops.cost import Cost, planned_batch

_WEIGHT_OF_NEW = 0.2
"""Share of a new measurement in the running scales: five steps move them most of the way."""

_NOMINAL_FLOPS = 20e9
_NOMINAL_BANDWIDTH = 10e9
"""Per second; measurements soon replace them, so only their order of magnitude matters."""

_PROBE = 512
"""Positions of the batches whose costs are compared."""


def nominal_step_time(cost_of: Callable[[ForwardBatch], Cost], num_groups: int) -> StepTime:
    """What a model's cost says of the time of its steps, at nominal speeds.

    Args:
        cost_of: FLOPs and bytes of a batch.
        num_groups: KV groups of the model.
    """
    first = cost_of(planned_batch([(0, 1)], num_groups))
    far = cost_of(planned_batch([(_PROBE, 1)], num_groups))
    prompt = cost_of(planned_batch([(0, _PROBE + 1)], num_groups))
    two = cost_of(planned_batch([(0, 1), (0, 1)], num_groups))
    flops_per_pair = (far.flops - first.flops) / _PROBE
    pairs = (_PROBE + 1) * (_PROBE + 2) // 2 - 1
    flops_per_token = (prompt.flops - first.flops - flops_per_pair * pairs) / _PROBE
    flops_per_sample = two.flops - first.flops - flops_per_token - flops_per_pair
    return StepTime(
        ms_per_step=first.weight_bytes / _NOMINAL_BANDWIDTH * 1e3,
        ms_per_token=max(flops_per_token, 0.0) / _NOMINAL_FLOPS * 1e3,
        ms_per_token_context=flops_per_pair / _NOMINAL_FLOPS * 1e3,
        ms_per_sample=max(flops_per_sample, 0.0) / _NOMINAL_FLOPS * 1e3,
    )


@dataclass
class Calibration:
    """Scales a nominal prediction to this machine.

    The error of a prediction is laid to each of its parts by the part's share in it, so that a
    step of one token says what a step costs, and one of many what a token costs (the normalised
    least mean squares rule of Widrow and Hoff, on relative errors).

    Args:
        nominal: the prediction at nominal speeds; only the ratios within it matter in the end.

    Attributes:
        step_time: the prediction in force.
    """

    nominal: StepTime
    step_time: StepTime = field(init=False)

    def __post_init__(self) -> None:
        self.step_time = self.nominal

    def observe(self, load: StepLoad, actual_ms: float) -> None:
        """Take in one measured step.

        Args:
            load: what was computed in it.
            actual_ms: what it took, above 0.
        """
        now = self.step_time
        predicted = now.total(load)
        if predicted <= 0:
            return
        tokens = (
            now.ms_per_token * load.num_tokens + now.ms_per_token_context * load.num_pairs
        ) / predicted
        samples = now.ms_per_sample * load.num_samples / predicted
        step = now.ms_per_step / predicted
        # One step can be held up by anything: a single measurement counts as off by a factor of 4
        # at most, before its weight.
        error = _WEIGHT_OF_NEW * (min(max(actual_ms / predicted, 0.25), 4.0) - 1)
        error /= step**2 + tokens**2 + samples**2
        by_token = max(1 + error * tokens, 0.5)
        self.step_time = StepTime(
            ms_per_step=now.ms_per_step * max(1 + error * step, 0.5),
            ms_per_token=now.ms_per_token * by_token,
            ms_per_token_context=now.ms_per_token_context * by_token,
            ms_per_sample=now.ms_per_sample * max(1 + error * samples, 0.5),
        )
