from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.serving import engine_rate as module
from benchmarks.serving.engine_rate import engine_rate, rate_of
from firstword.bench.serving.workloads import Sizes

SIZES = Sizes(input_tokens=150, output_tokens=60, concurrency=16)
REPORT = {
    "results": [
        {"case": {"kind": "prefill", "depth": 0}, "speed": 300},
        {"case": {"kind": "prefill", "depth": 150}, "speed": 1},
        {"case": {"kind": "decode", "depth": 0}, "speed": 1},
        {"case": {"kind": "decode", "depth": 150}, "speed": 120},
    ]
}


def test_reading_and_writing_are_added() -> None:
    # 16 x 150 / 300 = 8 s and 16 x 60 / 120 = 8 s for 960 tokens
    assert rate_of(REPORT, SIZES) == 960 / 16


def test_the_engine_is_measured_at_the_workloads_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def run(command: Sequence[str]) -> None:
        seen.extend(command)
        Path(command[-1]).write_text(json.dumps(REPORT))

    monkeypatch.setattr(module, "run", run)
    assert engine_rate(Path("m.gguf"), SIZES, 2, 3) == 60
    words = " ".join(seen)
    assert "bench m.gguf --prompt 150 --generate 60 --depth 0,150 --batch 16" in words
    assert "--threads 2 --repeat 3" in words
