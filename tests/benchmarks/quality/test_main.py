from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.quality import __main__ as command
from benchmarks.quality.divergence import Summary
from firstword.quant import GGMLType
from tests.weights.tiny_gguf import write_tiny_llama

GOOD = Summary(10_230, 0.004, 0.0001, 0.02, 0.97, 20.0, 1.002, 0.001)
BOUNDS = command.BOUNDS["smollm2:135m"]


def test_each_bound_can_be_broken() -> None:
    assert command.broken_bounds(GOOD, BOUNDS, replace(GOOD, mean_kl=0.0041)) == []
    for bad, word in (
        (replace(GOOD, mean_kl=0.0051), "mean KL 0.00510 is above 0.005"),
        (replace(GOOD, p99_kl=0.031), "99th percentile 0.0310 is above 0.03"),
        (replace(GOOD, top_agreement=0.95), "agreement 95.00% is below 96%"),
        (replace(GOOD, mean_kl=float("nan")), "mean KL nan"),
    ):
        (found,) = command.broken_bounds(bad, BOUNDS)
        assert word in found
    (found,) = command.broken_bounds(GOOD, BOUNDS, replace(GOOD, mean_kl=0.0039))
    assert "above llama.cpp's 0.00390" in found
    assert command.broken_bounds(replace(GOOD, mean_kl=1.0), None) == []


def test_a_file_is_measured_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tiny_llama(tmp_path / "tiny.gguf", dtype=GGMLType.Q8_0)
    arguments = ["--windows", "3", "--size", "40", "--no-peer", "--out", str(tmp_path)]
    assert command.main([str(path), *arguments]) == 0
    (file,) = tmp_path.glob("*-quality-tiny.json")
    written = json.loads(file.read_text())
    assert written["windows"] == [3, 40]
    assert written["engines"]["firstword"]["num_tokens"] == 3 * 39
    assert "117" in capsys.readouterr().out
