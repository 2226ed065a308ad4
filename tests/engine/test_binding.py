from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firstword.batch import SampledToken, SamplingRow, StepInput
from firstword.config import EngineConfig
from firstword.engine.binding import Binding, Numerics, bind, choose_numerics
from firstword.engine.runner import NativeRunner, ReferenceRunner
from firstword.errors import ConfigError, UnsupportedModelError
from firstword.models.registry import model_kv_spec
from firstword.ops.cost import planned_batch
from firstword.quant import GGMLType
from firstword.weights.checkpoint import Checkpoint, open_checkpoint
from tests.weights.tiny_gguf import TinyOptions, write_tiny_llama

CONFIG = EngineConfig()
QUANTIZED: TinyOptions = {"dtype": GGMLType.Q4_1}


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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where panels are kept, of however small a model."""
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("firstword.weights.panel_cache.MIN_BYTES", 0)
    return tmp_path / "home"


def bound(checkpoint: Checkpoint, config: EngineConfig = CONFIG) -> tuple[Binding, list[float]]:
    """A binding, and the probability of the token that it answers with."""
    spec = model_kv_spec(checkpoint.config)
    binding = bind(checkpoint, spec, config, "native", 2)
    runner = binding.new_runner(1)
    batch = replace(planned_batch([(0, 1)], 1), block_tables=(np.zeros((1, 1), np.int32),))
    result = runner.collect(runner.submit(StepInput(batch, (SamplingRow(temperature=0),))))
    (token,) = result.sampled
    assert isinstance(token, SampledToken)
    return binding, [token.token_id, token.logprob]


def test_kept_panels_give_the_same_answer(tmp_path: Path, home: Path) -> None:
    checkpoint = tiny(tmp_path, **QUANTIZED)
    without, expected = bound(checkpoint, EngineConfig(enable_panel_cache=False))
    assert not home.exists()
    for _ in range(2):
        binding, answer = bound(checkpoint)
        assert answer == expected
        assert binding.notice is None
        (kept,) = (home / "panels").iterdir()
        # The system counts pages of a mapped file as free memory; the plan must not.
        assert binding.reserved_bytes - without.reserved_bytes == kept.stat().st_size


def test_another_file_in_the_place_of_a_model_is_not_taken_for_it(
    tmp_path: Path, home: Path
) -> None:
    bound(tiny(tmp_path, **QUANTIZED))
    other = tiny(tmp_path, seed=5, **QUANTIZED)
    _, expected = bound(other, EngineConfig(enable_panel_cache=False))
    assert bound(other)[1] == expected
    assert len(list((home / "panels").iterdir())) == 1


def test_a_cache_that_cannot_be_written_costs_a_notice(tmp_path: Path, home: Path) -> None:
    home.touch()
    binding, answer = bound(tiny(tmp_path, **QUANTIZED))
    assert "the prepared weights are not kept" in str(binding.notice)
    assert answer == bound(tiny(tmp_path, **QUANTIZED), EngineConfig(enable_panel_cache=False))[1]


@pytest.mark.usefixtures("home")
def test_panels_that_cannot_get_their_name_cost_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError("no more names")

    checkpoint = tiny(tmp_path, **QUANTIZED)
    monkeypatch.setattr(os, "replace", refuse)
    binding, answer = bound(checkpoint)
    assert "not kept: no more names" in str(binding.notice)
    assert answer == bound(checkpoint, EngineConfig(enable_panel_cache=False))[1]


def test_a_disk_that_refuses_in_the_midst_costs_a_notice(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, content: memoryview, offset: int) -> int:
        raise OSError("input/output error")

    checkpoint = tiny(tmp_path, **QUANTIZED)
    monkeypatch.setattr(os, "pwrite", refuse)
    binding, answer = bound(checkpoint)
    assert "not kept: input/output error" in str(binding.notice)
    assert not list((home / "panels").iterdir())
    assert answer == bound(checkpoint, EngineConfig(enable_panel_cache=False))[1]


def test_a_machine_without_a_home_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRSTWORD_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    binding, _ = bound(tiny(tmp_path, **QUANTIZED))
    assert "HOME is ''" in str(binding.notice)


def test_a_model_that_is_refused_leaves_nothing(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedModelError("model", "tensor w", "type IQ2_XS is not built")

    monkeypatch.setattr("firstword.engine.binding.build_model", refuse)
    refused = tiny(tmp_path)
    with pytest.raises(UnsupportedModelError):
        bind(refused, model_kv_spec(refused.config), CONFIG, "native", 1)
    assert not list((home / "panels").iterdir())
