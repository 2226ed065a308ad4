from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.quality import __main__ as command
from benchmarks.quality import kv
from firstword.engine.binding import Numerics
from firstword.kvcache.kv_types import MEAN_KL_Q8
from firstword.quant import GGMLType
from tests.weights.tiny_gguf import write_tiny_llama

WINDOW = [(7 * i * i + 3 * i + 11) % 250 for i in range(300)]
RESULTS = {"SmolLM2 135M": "SmolLM2-135M-*", "Gemma 3 270M": "gemma-3-270m-*"}


@pytest.mark.parametrize("numerics", kv.BACKENDS)
def test_8_bits_differ_from_float16_a_little(tmp_path: Path, numerics: Numerics) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", dtype=GGMLType.Q8_0)
    found = kv.measure(path, numerics, [WINDOW, WINDOW[:40]])
    assert found.num_tokens == 299 + 39
    assert 0 < found.mean_kl < 0.01


def test_the_control_differs_by_rounding_alone(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", dtype=GGMLType.Q8_0)
    found = kv.measure_control(path, [WINDOW])
    assert found.num_tokens == 299
    assert 0 < found.mean_kl < 0.01


@pytest.mark.parametrize("name", MEAN_KL_Q8)
def test_what_people_are_told_is_what_was_measured(name: str) -> None:
    newest = sorted(command.RESULTS.glob(f"*-quality-kv-{RESULTS[name]}.json"))[-1]
    measured = json.loads(newest.read_text(encoding="utf-8"))["q8 against float16"]
    assert round(measured["blas"]["mean_kl"], 4) == MEAN_KL_Q8[name]
