from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.make_model import SHAPES, write_model
from benchmarks.peers import models
from benchmarks.peers.llama_cpp import LlamaCpp


def test_a_path_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_model(path, SHAPES["tiny"], "Q8_0")
    assert models.find(str(path)) == path


def test_a_shape_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(SHAPES, "llama-3.2-1b", SHAPES["tiny"])
    source = tmp_path / "source"
    (source / "models").mkdir(parents=True)
    write_model(source / "models" / "ggml-vocab-llama-bpe.gguf", SHAPES["tiny"], "F16")
    monkeypatch.setattr(LlamaCpp, "source", lambda self: source)
    path = models.find("1b:q4_0")
    assert path == tmp_path / "home" / "bench-models" / "llama-3.2-1b-Q4_0.gguf"
    made = path.stat().st_mtime_ns
    assert models.find("1b:q4_0") == path and path.stat().st_mtime_ns == made
    with pytest.raises(ValueError, match="q9"):
        models.find("1b:q9")
