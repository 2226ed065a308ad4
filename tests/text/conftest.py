"""Tokenizers of the real models, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstword.text.tokenizer import Tokenizer
from firstword.weights.gguf import GGUFFile


def _load(path: Path) -> Tokenizer:
    with GGUFFile.open(path) as file:
        return Tokenizer.from_gguf(file.metadata, str(path))


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_path: Path) -> Tokenizer:
    return _load(smollm2_path)


@pytest.fixture(scope="session")
def gemma3_tokenizer(gemma3_path: Path) -> Tokenizer:
    return _load(gemma3_path)
