"""What 8-bit keys and values cost in quality, against float16 ones: `scripts/quality --kv`.

Twice: with float32 activations (numerics="blas"), where nothing else differs, and in the compiled
backend. There activations have 8 bits as well, and any change of a value's last bits, such as q8's
of everything after the first layer, rounds other ones of them otherwise: most of that divergence is
theirs. The control says how much: float16 twice, with a change of the weights that is nothing but
such a change of last bits. Not here: what 8-bit activations cost (measure).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.quality.control import write_control
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
    return _compare(Model(path, numerics), Model(path, numerics, "q8"), windows)


def measure_control(path: Path, windows: Sequence[Sequence[int]]) -> Summary:
    """Predictions of the compiled backend against its own after a change of next to nothing."""
    with TemporaryDirectory() as folder:
        changed = Model(write_control(path, Path(folder)), "native")
        return _compare(Model(path, "native"), changed, windows)


def _compare(model: Model, other: Model, windows: Sequence[Sequence[int]]) -> Summary:
    return summarize(Predictions.join([_of_window(model, other, window) for window in windows]))


def _of_window(model: Model, changed: Model, window: Sequence[int]) -> Predictions:
    parts, start = [], 0
    for reference, other in zip(
        chunks_of_logits(model, window), chunks_of_logits(changed, window), strict=True
    ):
        actual = scored(window)[start : start + len(reference)]
        parts.append(compare(reference[: len(actual)], other[: len(actual)], actual))
        start += len(reference)
    return Predictions.join(parts)
