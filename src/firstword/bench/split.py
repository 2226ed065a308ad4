"""How the time of a prompt divides into linear layers and attention.

One call of the backend computes both, so the parts are inferred: linear layers take a time for
each of their multiply-adds and attention one for each of its own, and prompts of different lengths
tell the two apart. Not measured: anything that grows with neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_MIN_SPREAD = 1.5
"""Shares of attention must differ by this factor, or noise would decide."""


@dataclass(frozen=True)
class Timed:
    """One prompt: multiply-adds of both parts, and the seconds it took."""

    linear_macs: float
    attention_macs: float
    seconds: float


@dataclass(frozen=True)
class Split:
    """Seconds per multiply-add of each part."""

    linear: float
    attention: float

    def attention_share(self, timed: Timed) -> float:
        """Share of a prompt's time that attention takes."""
        attention = self.attention * timed.attention_macs
        return attention / (self.linear * timed.linear_macs + attention)


def fit_split(prompts: Sequence[Timed]) -> Split | None:
    """The least-squares fit of relative errors.

    Returns:
        None where the prompts are too alike, or their times contradict the model.
    """
    ratios = [p.attention_macs / p.linear_macs for p in prompts]
    if len(prompts) < 2 or max(ratios) < _MIN_SPREAD * min(ratios):
        return None
    terms = np.array([[p.linear_macs, p.attention_macs] for p in prompts])  # [P, 2]
    seconds = np.array([p.seconds for p in prompts])
    (linear, attention), *_ = np.linalg.lstsq(terms / seconds[:, None], np.ones(len(prompts)))
    if linear <= 0 or attention <= 0:
        return None
    return Split(float(linear), float(attention))
