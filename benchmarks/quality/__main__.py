"""Measures what quantized arithmetic costs on real text: `scripts/quality [MODEL...]`.

Prints a table and writes benchmarks/results/DATE-quality-MODEL.json; the exit status is 1 when a
bound is broken. A run that is cut short goes on where it was if --work names the same folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.quality import kv
from benchmarks.quality.divergence import Predictions, Summary, summarize
from benchmarks.quality.llama_cpp import build
from benchmarks.quality.measure import FIRSTWORD, LLAMA_CPP, Subjects, measure_windows
from benchmarks.quality.texts import WINDOW, windows
from firstword.bench.machine import fingerprint
from firstword.plan.hardware import usable_cores
from firstword.text.tokenizer import Tokenizer
from firstword.weights.catalogue import resolve
from firstword.weights.checkpoint import open_checkpoint

RESULTS = Path(__file__).parents[1] / "results"
MODELS = ("smollm2:135m", "gemma3:270m")


@dataclass(frozen=True)
class Bounds:
    """What a model's predictions have to keep."""

    mean_kl: float
    p99_kl: float
    top_agreement: float


BOUNDS = {
    "smollm2:135m": Bounds(mean_kl=0.005, p99_kl=0.03, top_agreement=0.96),
    "gemma3:270m": Bounds(mean_kl=0.008, p99_kl=0.05, top_agreement=0.94),
}


def broken_bounds(
    summary: Summary, bounds: Bounds | None, rival: Summary | None = None
) -> list[str]:
    """What is not kept, in words; a rival's mean KL is a bound too."""
    found = []
    if bounds is not None:
        if not summary.mean_kl <= bounds.mean_kl:
            found.append(f"mean KL {summary.mean_kl:.5f} is above {bounds.mean_kl}")
        if not summary.p99_kl <= bounds.p99_kl:
            found.append(f"99th percentile {summary.p99_kl:.4f} is above {bounds.p99_kl}")
        if not summary.top_agreement >= bounds.top_agreement:
            found.append(
                f"agreement {summary.top_agreement:.2%} is below {bounds.top_agreement:.0%}"
            )
    if rival is not None and not summary.mean_kl <= rival.mean_kl:
        found.append(f"mean KL {summary.mean_kl:.5f} is above llama.cpp's {rival.mean_kl:.5f}")
    return found


def table(summaries: dict[str, Summary]) -> str:
    """The figures, one line for each engine."""
    lines = [
        f"{'':12}{'tokens':>8}{'mean KL':>22}{'99% KL':>9}{'same top':>10}"
        f"{'perplexity of float32':>23}{'ratio':>20}"
    ]
    for name, s in summaries.items():
        lines.append(
            f"{name:12}{s.num_tokens:8,}{s.mean_kl:12.5f} ± {s.mean_kl_error:.5f}{s.p99_kl:9.4f}"
            f"{s.top_agreement:10.2%}{s.reference_perplexity:23.3f}"
            f"{s.perplexity_ratio:10.5f} ± {s.perplexity_ratio_error:.5f}"
        )
    return "\n".join(lines)


def setting(name: str, path: Path, texts: Sequence[Sequence[int]]) -> dict[str, object]:
    """What was measured, on which text and machine: the windows are all of one size."""
    return {
        "model": name,
        "file": path.name,
        "windows": [len(texts), len(texts[0])],
        "text_sha256": sha256(np.array(texts, np.int32).tobytes()).hexdigest(),
        "machine": asdict(fingerprint()),
    }


def write(about: dict[str, object], folder: Path, name: str) -> None:
    """Write a JSON file that begins with the day."""
    file = folder / f"{datetime.now(UTC):%Y-%m-%d}-{name}.json"
    file.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def run(name: str, options: argparse.Namespace) -> dict[str, Summary]:
    """Measure one model and write its JSON file."""
    path = resolve(name, download=False)
    program = build(LlamaCpp()) if options.peer else None
    with closing(Subjects(path, options.threads, program)) as subjects:
        metadata = subjects.native.checkpoint.tokenizer_metadata
        tokenizer = Tokenizer.from_gguf(metadata, str(path))
        texts = windows(tokenizer, options.windows, options.size)
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(options.work or scratch) / path.stem
            folder.mkdir(parents=True, exist_ok=True)
            found = list(measure_windows(subjects, texts, folder))
        backend = f"native ({subjects.native.ops.isa})"  # type: ignore[union-attr]
    summaries = {
        engine: summarize(Predictions.join([window[engine] for window in found]))
        for engine in subjects.names
    }
    about = {
        **setting(name, path, texts),
        "backend": backend,
        "python": sys.version.split()[0],
        "llama.cpp": LlamaCpp().version if options.peer else None,
        "engines": {engine: asdict(summary) for engine, summary in summaries.items()},
    }
    write(about, options.out, f"quality-{path.stem}")
    return summaries


def run_kv(name: str, options: argparse.Namespace) -> dict[str, Summary]:
    """What 8-bit keys and values cost one model; writes its JSON file."""
    path = resolve(name, download=False)
    tokenizer = Tokenizer.from_gguf(open_checkpoint(path).tokenizer_metadata, str(path))
    texts = windows(tokenizer, options.windows, options.size)
    summaries: dict[str, Summary] = {
        numerics: kv.measure(path, numerics, texts) for numerics in kv.BACKENDS
    }
    control = kv.measure_control(path, texts)
    about = {
        **setting(name, path, texts),
        "q8 against float16": {name: asdict(summary) for name, summary in summaries.items()},
        "control, native": asdict(control),
    }
    write(about, options.out, f"quality-kv-{path.stem}")
    return {**summaries, "control": control}


def main(arguments: Sequence[str]) -> int:
    """Measure the models; 1 if a bound is broken."""
    parser = argparse.ArgumentParser(prog="scripts/quality", description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, help="names or files")
    parser.add_argument("--windows", type=int, default=10, help="how many")
    parser.add_argument("--size", type=int, default=WINDOW, help="tokens in a window")
    parser.add_argument("--threads", type=int, default=usable_cores().count)
    parser.add_argument("--no-peer", dest="peer", action="store_false", help="without llama.cpp")
    parser.add_argument("--kv", action="store_true", help="8-bit keys and values against float16")
    parser.add_argument("--work", help="folder that keeps the windows that are done")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON files")
    options = parser.parse_args(arguments)
    status = 0
    for name in options.models:
        if options.kv:
            found = run_kv(name, options)
            print(f"{name}, q8 against float16, {options.windows} windows of {options.size} tokens")
            print(table(found))
            status |= found["blas"].mean_kl > kv.MAX_MEAN_KL
            continue
        summaries = run(name, options)
        print(f"{name}, {options.windows} windows of {options.size} tokens")
        print(table(summaries))
        for bound in broken_bounds(
            summaries[FIRSTWORD], BOUNDS.get(name), summaries.get(LLAMA_CPP)
        ):
            print(f"BROKEN: {bound}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
