"""Writes tests/golden/logits_*.npz and the token ids in prompts.json, from transformers in float32.

Run from the root after `scripts/install conformance`, only when a prompt changes:

    .venv/bin/python -m scripts.make_golden_logits smollm2:135m=FILE.gguf gemma3:270m=FILE.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstword.text.tokenizer import Tokenizer
from scripts import hf_reference

GOLDEN = Path("tests/golden")
NUM_TOP, NUM_COLUMNS, NUM_GREEDY = 8, 32, 64


def main(arguments: list[str]) -> None:
    path = GOLDEN / "prompts.json"
    prompts = json.loads(path.read_text())
    for argument in arguments:
        name, _, file = argument.partition("=")
        tokenize(prompts["prompts"], name, Path(file))
        write_golden(prompts["prompts"], name, Path(file))
    path.write_text(one_prompt_a_line(prompts))


def one_prompt_a_line(prompts: dict[str, Any]) -> str:
    lines = [json.dumps(prompt, ensure_ascii=False) for prompt in prompts["prompts"]]
    return '{"prompts": [\n' + ",\n".join(lines) + "\n]}\n"


def tokenize(prompts: list[dict[str, Any]], name: str, file: Path) -> None:
    """Set each prompt's ids for a model: raw text, begun as the model wants it."""
    from gguf import GGUFReader

    fields = GGUFReader(file).fields
    metadata = {k: v.contents() for k, v in fields.items() if not k.startswith("GGUF.")}
    tokenizer = Tokenizer.from_gguf(metadata, str(file))
    for prompt in prompts:
        ids = tokenizer.bos_ids + tokenizer.encode(prompt["text"])
        prompt["ids"][name] = ids[: prompt["max_tokens"]]


def write_golden(prompts: list[dict[str, Any]], name: str, file: Path) -> None:
    model = hf_reference.load_gguf(file)
    arrays: dict[str, NDArray[Any]] = {}
    for prompt in prompts:
        ids = prompt["ids"][name]
        summary = summarize(hf_reference.full_logits(model, ids))
        tokens, margins = hf_reference.greedy(model, ids, NUM_GREEDY)
        summary["greedy_ids"] = np.array(tokens, np.int32)
        summary["greedy_margins"] = np.array(margins, np.float32)
        arrays |= {f"{prompt['name']}.{key}": array for key, array in summary.items()}
        print(f"{name} {prompt['name']}: {len(ids)} tokens, least margin {min(margins):.4f}")
    target = GOLDEN / f"logits_{name.partition(':')[0]}.npz"
    np.savez_compressed(target, **arrays)
    print(f"{target}: {target.stat().st_size:,} bytes")


def summarize(logits: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """What is kept of logits [T, V]."""
    top = np.stack([top_ids(row) for row in logits])
    columns = np.linspace(0, logits.shape[1] - 1, NUM_COLUMNS).astype(np.int32)
    largest = logits.max(axis=1, keepdims=True)
    exponentials = np.exp((logits - largest).astype(np.float64)).sum(axis=1)
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
    main(sys.argv[1:])
