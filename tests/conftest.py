"""The catalogue models, for the tests that need a real file (`scripts/test` fetches them)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firstword.weights.catalogue import resolve

os.environ["FIRSTWORD_KV_DISK"] = "0"  # no test writes KV blocks to the user's cache unasked


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return resolve("smollm2:135m", download=False)


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return resolve("gemma3:270m", download=False)
