from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kv.decode import parse_arguments, run
from firstword.kvcache.disk.listing import list_stores
from tests.weights.tiny_gguf import write_tiny_llama


@pytest.mark.parametrize("batch", ["1", "2"])
def test_a_run_measures_both_speeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str
) -> None:
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    model = write_tiny_llama(tmp_path / "model.gguf", context=256)
    words = [str(model), "--prompt", "70", "--generate", "20", "--batch", batch, "--threads", "1"]
    (measured,) = run(parse_arguments([*words, "--disk", "0"]))
    assert measured.prefill > 0 and measured.decode > 0 and measured.peak_bytes > 10e6
    assert not (tmp_path / "home" / "kv").exists()


def test_rounds_take_turns_to_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    model = write_tiny_llama(tmp_path / "model.gguf", context=256)
    words = [str(model), "--prompt", "70", "--generate", "20", "--threads", "1"]
    runs = run(parse_arguments([*words, "--disk", str(10**8), "--alternate", "3"]))
    assert len(runs) == 6 and all(measured.decode > 0 for measured in runs)
    (kept,) = list_stores(tmp_path / "home" / "kv")
    assert kept.num_tokens == 3 * 64  # the full blocks of three times 89 positions
