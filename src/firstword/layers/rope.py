"""Rotary frequencies: which angle each pair of a head turns per position.

Fixed at load as a function of the config; the rotation itself is `Ops.rope`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext

from firstword.config import RopeScaling
from firstword.ops.protocol import RopeSpec


def rope_spec(
    head_dim: int,
    theta: float,
    scaling: RopeScaling | None = None,
    *,
    interleaved: bool = False,
    freq_factors: Sequence[float] | None = None,
) -> RopeSpec:
    """Frequencies of one kind of layer.

    Args:
        head_dim: values in one head, even.
        theta: base of the geometric series of frequencies.
        scaling: how they are stretched; None for not at all.
        interleaved: rotary pairs are neighbours instead of halves.
        freq_factors: head_dim / 2 divisors that a checkpoint brings (Llama 3.1 in GGUF).

    Returns:
        The frequencies in radians per position, and the scale of cos and sin.
    """
    inv_freq = _series(head_dim, theta)
    factor = 1.0
    if scaling is not None:
        inv_freq = _SCALINGS[scaling.kind](inv_freq, scaling, head_dim, theta)
        if scaling.kind == "yarn":
            factor = _yarn_attention_factor(scaling)
    if freq_factors is not None:
        inv_freq = [f / divisor for f, divisor in zip(inv_freq, freq_factors, strict=True)]
    return RopeSpec(tuple(inv_freq), interleaved=interleaved, attention_factor=factor)


def _series(head_dim: int, theta: float) -> list[float]:
    """theta^(-2 i / head_dim), in decimal: a library's `pow` may differ between processors."""
    with localcontext(Context(prec=30)):
        base = Decimal(theta)
        return [float(base ** (Decimal(-2 * i) / head_dim)) for i in range(head_dim // 2)]


def _default(
    inv_freq: list[float], scaling: RopeScaling, head_dim: int, theta: float
) -> list[float]:
    return inv_freq


def _linear(
    inv_freq: list[float], scaling: RopeScaling, head_dim: int, theta: float
) -> list[float]:
    """Positions divided by the factor (Chen et al., 2023, arXiv 2306.15595)."""
    return [f / scaling.factor for f in inv_freq]


def _llama3(
    inv_freq: list[float], scaling: RopeScaling, head_dim: int, theta: float
) -> list[float]:
    """Long wavelengths stretched, short ones kept, a ramp between (Llama 3.1)."""
    original = scaling.original_max_position_embeddings
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    scaled = []
    for f in inv_freq:
        turns = original * f / (2 * math.pi)  # rotations within the original context
        keep = min(1.0, max(0.0, (turns - low) / (high - low)))
        scaled.append(keep * f + (1 - keep) * f / scaling.factor)
    return scaled


def _yarn(inv_freq: list[float], scaling: RopeScaling, head_dim: int, theta: float) -> list[float]:
    """Interpolation by parts (YaRN, Peng et al., 2023, arXiv 2309.00071)."""

    def dimension(rotations: float) -> float:
        ratio = scaling.original_max_position_embeddings / (rotations * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(theta))

    low = max(math.floor(dimension(scaling.beta_fast)), 0)
    high = min(math.ceil(dimension(scaling.beta_slow)), head_dim - 1)
    span = max(high - low, 0.001)
    scaled = []
    for i, f in enumerate(inv_freq):
        keep = 1 - min(1.0, max(0.0, (i - low) / span))
        scaled.append(keep * f + (1 - keep) * f / scaling.factor)
    return scaled


def _yarn_attention_factor(scaling: RopeScaling) -> float:
    if scaling.attention_factor is not None:
        return scaling.attention_factor
    return 0.1 * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0


_SCALINGS = {"default": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn}
