"""How long steps take on this machine, learned from the steps themselves.

The shape of the prediction comes from the model's cost (bytes of a step, FLOPs of a token, dot
products of attention); its two scales, one for what every step pays and one for what every token
pays, follow what was measured. Not here: what is done with a prediction (scheduler).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from firstword.batch import ForwardBatch
from firstword.engine.step import StepTime
from firstword.ops.cost import Cost, planned_batch

_WEIGHT_OF_NEW = 0.2
"""Share of a new measurement in the running scales: five steps move them most of the way."""

_FEW_TOKENS = 4
"""Steps of at most this many tokens tell what a step costs; larger ones what a token costs."""

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
    flops_per_pair = (far.flops - first.flops) / _PROBE
    pairs = (_PROBE + 1) * (_PROBE + 2) // 2 - 1
    flops_per_token = (prompt.flops - first.flops - flops_per_pair * pairs) / _PROBE
    return StepTime(
        ms_per_step=first.weight_bytes / _NOMINAL_BANDWIDTH * 1e3,
        ms_per_token=max(flops_per_token, 0.0) / _NOMINAL_FLOPS * 1e3,
        ms_per_token_context=flops_per_pair / _NOMINAL_FLOPS * 1e3,
    )


@dataclass
class Calibration:
    """Scales a nominal prediction to this machine.

    Args:
        nominal: the prediction at nominal speeds; only the ratios within it matter in the end.
    """

    nominal: StepTime
    step_scale: float = 1.0
    token_scale: float = 1.0

    @property
    def step_time(self) -> StepTime:
        """The prediction in force."""
        return replace(
            self.nominal,
            ms_per_step=self.nominal.ms_per_step * self.step_scale,
            ms_per_token=self.nominal.ms_per_token * self.token_scale,
            ms_per_token_context=self.nominal.ms_per_token_context * self.token_scale,
        )

    def observe(self, num_tokens: int, predicted_ms: float, actual_ms: float) -> None:
        """Take in one measured step.

        Args:
            num_tokens: positions computed in it.
            predicted_ms: what `step_time` said of it.
            actual_ms: what it took, above 0.
        """
        per_step = self.nominal.ms_per_step * self.step_scale
        per_tokens = predicted_ms - per_step
        if num_tokens <= _FEW_TOKENS:
            if per_step > 0:
                self.step_scale *= _step_towards((actual_ms - per_tokens) / per_step)
        elif per_tokens > 0:
            self.token_scale *= _step_towards((actual_ms - per_step) / per_tokens)


def _step_towards(ratio: float) -> float:
    # One step can be held up by anything: a single measurement moves a scale by a factor of 4 at
    # most, before its weight.
    return 1 + _WEIGHT_OF_NEW * (min(max(ratio, 0.25), 4.0) - 1)
