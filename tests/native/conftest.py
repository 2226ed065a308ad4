"""The kernels, compiled once per session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.abi import Kernels, build

Built = tuple[Path, dict[str, Path]]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The library and its objects by unit."""
    return build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="session")
def kernels(built: Built) -> Kernels:
    """The compiled kernels."""
    return Kernels(built[0])
