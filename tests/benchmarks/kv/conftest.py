"""A tiny model behind real servers and commands, and a cache folder for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kv.completion import Words
from firstword.text.tokenizer import Tokenizer
from firstword.weights.checkpoint import open_checkpoint
from tests.weights.tiny_gguf import write_tiny_llama

FLAGS = ("--numerics", "exact", "--max-num-seqs", "2")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a tiny model with a context of 512 tokens."""
    return write_tiny_llama(tmp_path_factory.mktemp("tiny") / "model.gguf", context=512)


@pytest.fixture
def tiny_words(tiny_model: Path) -> Words:
    """The words of its small vocabulary."""
    metadata = open_checkpoint(tiny_model).tokenizer_metadata
    tokenizer = Tokenizer.from_gguf(metadata, str(tiny_model))
    single = {word: tokenizer.encode(f" {word}") for word in ("the", "a", "w", "is")}
    assert all(len(ids) == 1 for ids in single.values())
    return Words({word: ids[0] for word, ids in single.items()})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of everything that is kept: no test writes to the user's."""
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FIRSTWORD_KV_DISK", "100000000")
    return tmp_path / "home"
