"""Fixtures of the whole suite."""

import os
from pathlib import Path

import pytest


def _model_path(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} names no model file")
    return Path(value)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return _model_path("FIRSTWORD_TEST_SMOLLM2")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    return _model_path("FIRSTWORD_TEST_GEMMA3")
