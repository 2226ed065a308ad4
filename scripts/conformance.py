"""Compares all logits of the catalogue models with those of transformers, and greedy decoding.

    make conformance
    .venv/bin/python -m scripts.conformance smollm2:135m

Prints a line per model and prompt; the exit status is 1 when a bound is broken.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from firstword.batch import Float32Array
from firstword.config import EngineConfig
from firstword.sampling.params import SamplingParams
from firstword.weights.catalogue import resolve
from scripts import hf_reference
from tests.harness import Model, answer
from tests.logits import chunks_of_logits

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


def main(names: Sequence[str]) -> int:
    found = {name: version(name) for name in ("transformers", "torch", "numpy")}
    print(", ".join(f"{name} {number}" for name, number in found.items()))
    prompts = json.loads(Path("tests/golden/prompts.json").read_text(encoding="utf-8"))["prompts"]
    print(
        f"{'model':14}{'prompt':9}{'tokens':>7}{'largest':>10}{'mean':>10}"
        f"{'argmax equal':>15}{'greedy':>8}"
    )
    holds = True
    for name in names:
        path = resolve(name, download=False)
        model = Model(path, numerics="blas", kv_dtype="float32")
        reference = hf_reference.load_gguf(path)
        for prompt in prompts:
            ids = prompt["ids"][name]
            tokens = our_greedy(model, ids)
            # One pass over prompt and answer: the reference decodes greedily to the same tokens
            # if each of them is its most probable one after those before.
            theirs = hf_reference.full_logits(reference, ids + tokens[:-1])
            result = compare(chunks_of_logits(model, ids), theirs[: len(ids)])
            same = first_difference(tokens, theirs[len(ids) - 1 :].argmax(axis=1).tolist())
            holds &= result.holds and same == NUM_GREEDY
            print(
                f"{name:14}{prompt['name']:9}{len(ids):7}{result.largest:10.1e}{result.mean:10.1e}"
                f"{result.num_equal:7} of {result.num_clear:4}{same:5}/{NUM_GREEDY}",
                flush=True,
            )
    print(f"bounds: largest <= {MAX_DIFFERENCE}, argmax where the margin exceeds {MIN_MARGIN}:")
    print("all kept" if holds else "BROKEN")
    return 0 if holds else 1


def our_greedy(model: Model, ids: list[int]) -> list[int]:
    """NUM_GREEDY tokens through the whole engine, end tokens included."""
    params = SamplingParams(temperature=0, max_tokens=NUM_GREEDY, ignore_eos=True)
    return answer(model.engine(EngineConfig()), ids, params)


def compare(ours: Iterable[Float32Array], theirs: Float32Array) -> Comparison:
    """Compare chunks of rows with all rows [T, V]."""
    largest = total = 0.0
    num_rows = num_clear = num_equal = 0
    for a in (row for chunk in ours for row in chunk):
        b = theirs[num_rows]
        num_rows += 1
        difference = np.abs(a - b)
        largest = float(np.maximum(largest, difference.max()))  # keeps a NaN
        total += float(difference.mean(dtype=np.float64))
        best, second = np.partition(b, -2)[[-1, -2]]
        if best - second > MIN_MARGIN:
            num_clear += 1
            num_equal += int(a.argmax() == b.argmax())
    assert num_rows == len(theirs)
    return Comparison(largest, total / num_rows, num_clear, num_equal)


def first_difference(ours: list[int], theirs: list[int]) -> int:
    """How many tokens are the same before the first that differs."""
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a != b:
            return index
    return len(ours)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or MODELS))
