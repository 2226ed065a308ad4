"""Tokenizers of the real models, loaded once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.text.gguf_metadata import read_metadata

from firstword.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(read_metadata(smollm2_path), str(smollm2_path))


@pytest.fixture(scope="session")
def gemma3_tokenizer(gemma3_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(read_metadata(gemma3_path), str(gemma3_path))
