"""The kernels, compiled once per session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.abi import Isa, Kernels, build

Built = tuple[Path, dict[str, Path]]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The library and its objects by unit."""
    return build(tmp_path_factory.mktemp("kernels"))


@pytest.fixture(scope="session")
def kernels(built: Built) -> Kernels:
    """The compiled kernels."""
    return Kernels(built[0])


@pytest.fixture(params=["generic", "avx2", "avx512"])
def isa(request: pytest.FixtureRequest, kernels: Kernels) -> Isa:
    """Each instruction set that this processor can run."""
    return _supported(request.param, kernels)


@pytest.fixture(params=["avx2", "avx512"])
def vectors(request: pytest.FixtureRequest, kernels: Kernels) -> Isa:
    """Each of them but the scalar oracle."""
    return _supported(request.param, kernels)


def _supported(isa: Isa, kernels: Kernels) -> Isa:
    if not kernels.supports(isa):
        pytest.skip(f"this processor has no {isa}")
    return isa
