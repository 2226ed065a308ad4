"""Predictions of whole windows: the compiled backend, and llama.cpp, against float32.

The reference multiplies float32 activations with dequantized weights (numerics="blas", keys and
values float32). Not here: texts, and what to make of the predictions (divergence).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.quality.divergence import Predictions, compare
from benchmarks.quality.llama_cpp import LlamaLogits
from benchmarks.quality.texts import scored
from tests.harness import Model
from tests.logits import CHUNK, chunks_of_logits

FIRSTWORD, LLAMA_CPP = "firstword", "llama.cpp"
_FIELDS = ("kl", "same_top", "reference_logprob", "logprob")


class Subjects:
    """A model file in float32, in the compiled backend, and in llama.cpp if it is to be had.

    Args:
        path: the file.
        threads: to compute with.
        llama_program: see llama_cpp.build; None leaves it out.
    """

    def __init__(self, path: Path, threads: int, llama_program: Path | None) -> None:
        self.reference = Model(path, "blas", kv_dtype="float32")
        self.native = Model(path, "native", threads=threads)
        self.vocab_size = self.native.config.vocab_size
        self._llama = llama_program and LlamaLogits(path, threads, llama_program)

    @property
    def names(self) -> list[str]:
        """What is measured."""
        return [FIRSTWORD, LLAMA_CPP] if self._llama else [FIRSTWORD]

    def measure(self, window: Sequence[int]) -> dict[str, Predictions]:
        """The predictions of each for one window."""
        others = {FIRSTWORD: chunks_of_logits(self.native, window)}
        if self._llama:
            others[LLAMA_CPP] = self._llama.logits(window, CHUNK, self.vocab_size)
        parts: dict[str, list[Predictions]] = {name: [] for name in others}
        start = 0
        for reference in chunks_of_logits(self.reference, window):
            actual = scored(window)[start : start + len(reference)]
            for name, chunks in others.items():
                logits = next(chunks)
                parts[name].append(compare(reference[: len(actual)], logits[: len(actual)], actual))
            start += len(reference)
        return {name: Predictions.join(found) for name, found in parts.items()}

    def close(self) -> None:
        """End llama.cpp."""
        if self._llama:
            self._llama.close()


def measure_windows(
    subjects: Subjects, windows: Sequence[Sequence[int]], folder: Path
) -> Iterator[dict[str, Predictions]]:
    """Measure windows; those whose results are in `folder` already are not computed again."""
    for index, window in enumerate(windows):
        file = folder / f"window-{index:03}.npz"
        if not file.is_file():
            _save(file, window, subjects.measure(window))
        yield _load(file, window, subjects.names)


def _save(file: Path, window: Sequence[int], found: dict[str, Predictions]) -> None:
    arrays = {
        f"{name}/{field}": getattr(predictions, field)
        for name, predictions in found.items()
        for field in _FIELDS
    }
    np.savez(file, ids=np.array(window, np.int32), **arrays)


def _load(file: Path, window: Sequence[int], names: Sequence[str]) -> dict[str, Predictions]:
    with np.load(file) as arrays:
        if arrays["ids"].tolist() != list(window):
            raise ValueError(f"{file} is of another text: give an empty folder")
        return {
            name: Predictions(*(arrays[f"{name}/{field}"] for field in _FIELDS)) for name in names
        }
