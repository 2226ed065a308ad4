"""Compares all logits of the catalogue models with those of transformers, and greedy decoding.

    make conformance

Prints a line per model and prompt; the exit status is 1 when a bound is broken.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firstword.config import EngineConfig
from firstword.sampling.params import SamplingParams
from firstword.weights.catalogue import resolve
from scripts import hf_reference
from tests.harness import Model, answer
from tests.logits import our_logits

MODELS = ("smollm2:135m", "gemma3:270m")
MAX_DIFFERENCE = 1e-3
MIN_MARGIN = 2e-3
"""The reference's lead below which rounding may choose another token."""
NUM_GREEDY = 64


@dataclass(frozen=True)
class Comparison:
    """How two arrays of logits [T, V] differ.

    Args:
        largest: largest absolute difference.
        mean: mean absolute difference.
        num_clear: positions at which the reference's margin exceeds MIN_MARGIN.
        num_equal: those of them with the same most probable token.
    """

    largest: float
    mean: float
    num_clear: int
    num_equal: int

    @property
    def holds(self) -> bool:
        """Whether the bounds are kept; a NaN keeps none."""
        return self.largest <= MAX_DIFFERENCE and self.num_equal == self.num_clear


def main() -> int:
    found = {name: version(name) for name in ("transformers", "torch", "numpy")}
    print(", ".join(f"{name} {number}" for name, number in found.items()))
    prompts = json.loads(Path("tests/golden/prompts.json").read_text(encoding="utf-8"))["prompts"]
    print(
        f"{'model':14}{'prompt':9}{'tokens':>7}{'largest':>10}{'mean':>10}"
        f"{'argmax equal':>15}{'greedy':>8}"
    )
    holds = True
    for name in MODELS:
        path = resolve(name, download=False)
        reference = hf_reference.load_gguf(path)
        for prompt in prompts:
            ids = prompt["ids"][name]
            result = compare(our_logits(path, ids), hf_reference.full_logits(reference, ids))
            theirs, _ = hf_reference.greedy(reference, ids, NUM_GREEDY)
            same = first_difference(our_greedy(path, ids), theirs)
            holds &= result.holds and same == NUM_GREEDY
            print(
                f"{name:14}{prompt['name']:9}{len(ids):7}{result.largest:10.1e}{result.mean:10.1e}"
                f"{result.num_equal:7} of {result.num_clear:4}{same:5}/{NUM_GREEDY}",
                flush=True,
            )
    print(f"bounds: largest <= {MAX_DIFFERENCE}, argmax where the margin exceeds {MIN_MARGIN}:")
    print("all kept" if holds else "BROKEN")
    return 0 if holds else 1


def our_greedy(path: Path, ids: list[int]) -> list[int]:
    """NUM_GREEDY tokens through the whole engine, end tokens included."""
    engine = Model(path, numerics="blas", kv_dtype="float32").engine(EngineConfig())
    params = SamplingParams(temperature=0, max_tokens=NUM_GREEDY, ignore_eos=True)
    return answer(engine, ids, params)


def compare(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> Comparison:
    """Row by row, so that no third array of this size is needed."""
    largest = total = 0.0
    num_clear = num_equal = 0
    for a, b in zip(ours, theirs, strict=True):
        difference = np.abs(a - b)
        largest = float(np.maximum(largest, difference.max()))  # keeps a NaN
        total += float(difference.mean(dtype=np.float64))
        best, second = np.partition(b, -2)[[-1, -2]]
        if best - second > MIN_MARGIN:
            num_clear += 1
            num_equal += int(a.argmax() == b.argmax())
    return Comparison(largest, total / len(ours), num_clear, num_equal)


def first_difference(ours: list[int], theirs: list[int]) -> int:
    """How many tokens are the same before the first that differs."""
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a != b:
            return index
    return len(ours)


if __name__ == "__main__":
    sys.exit(main())
