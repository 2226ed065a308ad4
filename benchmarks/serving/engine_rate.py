"""What the engine alone would make of the same work: `firstword bench`, in a process of its own."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.peers.engine import run
from firstword.bench.serving.workloads import Sizes


def engine_rate(model: Path, sizes: Sizes, threads: int, rounds: int) -> float:
    """Tokens per second of answers, when prompts are read and answered as full batches.

    Args:
        model: the file.
        sizes: of the workload: tokens in and out, and clients at once.
        threads: to compute with.
        rounds: to take the median of.

    Raises:
        EngineFailedError: the measurement failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.json"
        run(
            [
                sys.executable, "-m", "firstword", "bench", str(model),
                "--prompt", str(sizes.input_tokens), "--generate", str(sizes.output_tokens),
                "--depth", f"0,{sizes.input_tokens}", "--batch", str(sizes.concurrency),
                "--no-chat", "--threads", str(threads), "--repeat", str(rounds),
                "--json", str(file),
            ]
        )  # fmt: skip
        return rate_of(json.loads(file.read_text()), sizes)


def rate_of(report: dict[str, Any], sizes: Sizes) -> float:
    """The rate, from a report of `firstword bench`: prompts from nothing, answers behind them."""
    speeds = {
        (result["case"]["kind"], result["case"]["depth"]): float(result["speed"])
        for result in report["results"]
    }
    reading = sizes.input_tokens / speeds["prefill", 0]
    writing = sizes.output_tokens / speeds["decode", sizes.input_tokens]
    return sizes.output_tokens / (reading + writing)
