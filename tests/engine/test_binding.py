from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from firstword.config import EngineConfig
from firstword.engine.binding import Numerics, bind, choose_numerics
from firstword.engine.runner import NativeRunner, ReferenceRunner
from firstword.errors import ConfigError
from firstword.models.registry import model_kv_spec
from firstword.quant import GGMLType
from firstword.weights.checkpoint import Checkpoint, open_checkpoint
from tests.weights.tiny_gguf import TinyOptions, write_tiny_llama

CONFIG = EngineConfig()


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the compiled module."""
    real = importlib.util.find_spec

    def find(name: str) -> object:
        return None if name == "firstword._native" else real(name)

    monkeypatch.setattr("firstword.engine.binding.find_spec", find)


def tiny(path: Path, **options: object) -> Checkpoint:
    given: TinyOptions = options  # type: ignore[assignment]
    return open_checkpoint(write_tiny_llama(path / "model.gguf", **given))


def test_the_compiled_kernels_are_chosen_where_they_can_compute_the_file(tmp_path: Path) -> None:
    assert choose_numerics(tiny(tmp_path, dtype=GGMLType.IQ4_NL), CONFIG) == ("native", None)


@pytest.mark.parametrize(
    ("options", "config", "why"),
    [
        ({"head_dim": 24}, CONFIG, "heads of 24 values"),
        ({}, EngineConfig(kv_dtype="bfloat16"), "not bfloat16"),
    ],
)
def test_numpy_computes_the_others_and_a_notice_says_why(
    tmp_path: Path, options: dict[str, object], config: EngineConfig, why: str
) -> None:
    numerics, notice = choose_numerics(tiny(tmp_path, **options), config)
    assert numerics == "blas"
    assert notice is not None
    assert why in notice


@pytest.mark.usefixtures("no_kernels")
def test_an_installation_without_kernels_says_so(tmp_path: Path) -> None:
    checkpoint = tiny(tmp_path)
    numerics, notice = choose_numerics(checkpoint, CONFIG)
    assert (numerics, "no compiled kernels" in str(notice)) == ("blas", True)
    spec = model_kv_spec(checkpoint.config)
    with pytest.raises(ConfigError, match=r'no compiled kernels: .*"blas"'):
        bind(checkpoint, spec, CONFIG, "native", 1)


@pytest.mark.parametrize("numerics", ["native", "blas", "exact", "int8"])
def test_each_arithmetic_names_its_backend_and_makes_runners(
    tmp_path: Path, numerics: Numerics
) -> None:
    checkpoint = tiny(tmp_path)
    binding = bind(checkpoint, model_kv_spec(checkpoint.config), CONFIG, numerics, 1)
    is_native = numerics == "native"
    assert binding.name.startswith("native (" if is_native else f"reference ({numerics}")
    kind = NativeRunner if is_native else ReferenceRunner
    assert isinstance(binding.new_runner(1), kind)
    assert binding.reserved_bytes > 0


def test_what_cannot_be_bound_is_refused(tmp_path: Path) -> None:
    checkpoint = tiny(tmp_path)
    spec = model_kv_spec(checkpoint.config)
    with pytest.raises(ConfigError, match="numerics is 'fast'"):
        bind(checkpoint, spec, CONFIG, "fast", 1)  # type: ignore[arg-type]
