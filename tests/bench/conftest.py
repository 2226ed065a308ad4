"""A tiny model with a pool that holds a few short sequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstword import LLM
from firstword.config import EngineConfig
from tests.weights.tiny_gguf import write_tiny_llama


@pytest.fixture
def llm(tmp_path: Path) -> LLM:
    path = write_tiny_llama(tmp_path / "tiny.gguf")
    config = EngineConfig(max_model_len=256, max_num_seqs=6, max_num_batched_tokens=64)
    return LLM(path, numerics="blas", threads=1, config=config)
