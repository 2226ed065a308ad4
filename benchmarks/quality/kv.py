"""What 8-bit keys and values cost in quality, against float16 ones: `scripts/quality --kv`.

Twice: with float32 activations (numerics="blas"), where nothing else differs, and in the compiled
backend. There activations have 8 bits as well, and any change of a value's last bits, such as q8's
of everything after the first layer, rounds other ones of them otherwise: most of that divergence is
theirs. Not here: what 8-bit activations cost (measure).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality.divergence import Predictions, Summary, compare, summarize
from benchmarks.quality.texts import scored
from firstword.engine.binding import Numerics
from tests.harness import Model
from tests.logits import chunks_of_logits

BACKENDS: tuple[Numerics, ...] = ("blas", "native")
MAX_MEAN_KL = 0.003
"""In nats, with float32 activations."""


def measure(path: Path, numerics: Numerics, windows: Sequence[Sequence[int]]) -> Summary:
    """Predictions of q8 against those of float16, over all windows."""
    half, q8 = (Model(path, numerics, kv_dtype) for kv_dtype in ("float16", "q8"))
    return summarize(Predictions.join([_compare(half, q8, window) for window in windows]))


def _compare(half: Model, q8: Model, window: Sequence[int]) -> Predictions:
    parts, start = [], 0
    for reference, other in zip(
        chunks_of_logits(half, window), chunks_of_logits(q8, window), strict=True
    ):
        actual = scored(window)[start : start + len(reference)]
        parts.append(compare(reference[: len(actual)], other[: len(actual)], actual))
        start += len(reference)
    return Predictions.join(parts)
