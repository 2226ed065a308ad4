from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from firstword.errors import CheckpointError, UnsupportedModelError
from firstword.models.gemma3 import Gemma3
from firstword.models.llama import Llama
from firstword.models.registry import MODEL_TYPES, build_model, model_kv_spec
from firstword.ops.cost import CostOps
from firstword.ops.reference import ReferenceOps
from firstword.weights.checkpoint import ShapeCheckpoint, open_checkpoint
from tests.dense import RandomCheckpoint, config_of
from tests.weights.tiny_gguf import write_tiny_gemma3


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_family_can_be_built_over_every_backend(model_type: str) -> None:
    config = config_of(model_type, sliding_window=8)
    spec = model_kv_spec(config)
    family = Gemma3 if model_type == "gemma3" else Llama
    assert isinstance(build_model(RandomCheckpoint(config), ReferenceOps(), spec), family)
    assert isinstance(build_model(ShapeCheckpoint(config), CostOps(), spec), family)


def test_a_family_that_is_not_built_is_named_with_those_that_are() -> None:
    checkpoint = ShapeCheckpoint(config_of("mamba"), "folder/config.json")
    with pytest.raises(UnsupportedModelError, match="'mamba' is not built") as caught:
        build_model(checkpoint, CostOps(), model_kv_spec(checkpoint.config))
    assert caught.value.where == "model_type"
    assert caught.value.path == "folder/config.json"
    for built in MODEL_TYPES:
        assert built in str(caught.value)


def test_a_tensor_that_no_layer_asks_for_is_an_error() -> None:
    """It would change what the model was trained to compute."""
    config = config_of("llama")
    extra = {"model.layers.0.self_attn.q_proj.bias": np.zeros(32)}
    with pytest.raises(CheckpointError, match="no use for 1") as caught:
        build_model(RandomCheckpoint(config, extra), ReferenceOps(), model_kv_spec(config))
    assert "self_attn.q_proj.bias" in caught.value.where


def test_a_tensor_of_another_shape_is_refused_with_both() -> None:
    config = config_of("llama")
    extra = {"model.norm.weight": np.ones(23)}
    with pytest.raises(CheckpointError, match=r"expected shape \[24\].*found \[23\]"):
        build_model(RandomCheckpoint(config, extra), ReferenceOps(), model_kv_spec(config))


def test_groups_are_full_or_sliding_layers(tmp_path: Path) -> None:
    config = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf", layers=12)).config
    spec = model_kv_spec(config, "float32")
    assert {g.k_dtype for g in spec.groups} == {g.v_dtype for g in spec.groups} == {"float32"}
    assert {g.kind: g.window for g in spec.groups} == {"full": None, "sliding": 48}
    assert sorted(layer for g in spec.groups for layer in g.layers) == list(range(12))
    assert model_kv_spec(config).groups[0].k_dtype == "float16"
