"""Writes tests/golden/logits_*.npz and the token ids in prompts.json, from transformers in float32.

Run from the root after `scripts/install conformance`, only when a prompt changes:

    .venv/bin/python -m scripts.make_golden_logits
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstword.text.tokenizer import Tokenizer
from firstword.weights.catalogue import resolve
from firstword.weights.checkpoint import open_checkpoint
from scripts import hf_reference

GOLDEN = Path("tests/golden")
NUM_TOP, NUM_COLUMNS, NUM_GREEDY = 8, 32, 64
MAX_SPREAD = 2.5e-4
"""Largest difference between two orders of summation of the reference itself. A prompt above it
holds a position at which float32 decides nothing: no implementation could be held to 1e-3 there."""


def main() -> None:
    path = GOLDEN / "prompts.json"
    prompts = json.loads(path.read_text(encoding="utf-8"))
    for name in ("smollm2:135m", "gemma3:270m"):
        file = resolve(name, download=False)
        tokenize(prompts["prompts"], name, file)
        write_golden(prompts["prompts"], name, file)
    path.write_text(one_prompt_a_line(prompts), encoding="utf-8")


def one_prompt_a_line(prompts: dict[str, Any]) -> str:
    lines = [json.dumps(prompt, ensure_ascii=False) for prompt in prompts["prompts"]]
    return '{"prompts": [\n' + ",\n".join(lines) + "\n]}\n"


def tokenize(prompts: list[dict[str, Any]], name: str, file: Path) -> None:
    """Set each prompt's ids for a model: raw text, begun as the model wants it."""
    metadata = open_checkpoint(file).tokenizer_metadata
    tokenizer = Tokenizer.from_gguf(metadata, str(file))
    for prompt in prompts:
        ids = tokenizer.bos_ids + tokenizer.encode(prompt["text"])
        prompt["ids"][name] = ids[: prompt["max_tokens"]]


def write_golden(prompts: list[dict[str, Any]], name: str, file: Path) -> None:
    model = hf_reference.load_gguf(file)
    arrays: dict[str, NDArray[Any]] = {}
    for prompt in prompts:
        ids = prompt["ids"][name]
        logits = hf_reference.full_logits(model, ids)
        spread = np.abs(logits - hf_reference.full_logits(model, ids, "sdpa")).max()
        if spread > MAX_SPREAD:
            raise SystemExit(
                f"{name} {prompt['name']}: the reference disagrees with itself by {spread}"
            )
        summary = summarize(logits)
        tokens, margins = hf_reference.greedy(model, ids, NUM_GREEDY)
        summary["greedy_ids"] = np.array(tokens, np.int32)
        summary["greedy_margins"] = np.array(margins, np.float32)
        arrays |= {f"{prompt['name']}.{key}": array for key, array in summary.items()}
        said = f"{len(ids)} tokens, spread {spread:.1e}, least margin {min(margins):.3f}"
        print(f"{name} {prompt['name']}: {said}", flush=True)
    target = GOLDEN / f"logits_{name.partition(':')[0]}.npz"
    np.savez_compressed(target, allow_pickle=False, **arrays)
    print(f"{target}: {target.stat().st_size:,} bytes")


def summarize(logits: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """What is kept of logits [T, V]."""
    top = np.stack([top_ids(row) for row in logits])
    columns = np.linspace(0, logits.shape[1] - 1, NUM_COLUMNS).astype(np.int32)
    largest = logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits - largest).sum(axis=1, dtype=np.float64)
    return {
        "argmax": logits.argmax(axis=1).astype(np.int32),
        "top_ids": top.astype(np.int32),
        "top_logits": np.take_along_axis(logits, top, axis=1),
        "logsumexp": (largest[:, 0] + np.log(exponentials)).astype(np.float32),
        "column_ids": columns,
        "column_logits": logits[:, columns],
    }


def top_ids(row: NDArray[np.float32]) -> NDArray[np.int64]:
    """The ids of the largest logits of a row [V], largest first, ties by lowest id."""
    least = np.partition(row, -NUM_TOP)[-NUM_TOP]
    candidates = np.flatnonzero(row >= least)
    return candidates[np.argsort(-row[candidates], kind="stable")][:NUM_TOP]


if __name__ == "__main__":
    main()
