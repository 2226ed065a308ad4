from __future__ import annotations

import numpy as np
import pytest

from firstword.errors import ConfigError
from firstword.layers.mlp import GatedMLP
from firstword.ops.reference import ReferenceOps
from firstword.weights.loader import Loader
from tests.dense import RandomCheckpoint, config_of, mlp


@pytest.mark.parametrize("act", ["silu", "gelu_pytorch_tanh", "gelu_tanh", "gelu_new"])
def test_gate_up_down(act: str) -> None:
    config = config_of("llama", hidden_act=act)
    checkpoint, ops = RandomCheckpoint(config), ReferenceOps("exact")
    layer = GatedMLP(ops, Loader(checkpoint, ops.prepare).at("mlp"), config)
    x = np.random.default_rng(1).normal(0, 2, (5, 24)).astype(np.float32)
    expected = mlp(config, checkpoint.values, x.astype(np.float64))
    np.testing.assert_allclose(layer(x), expected, atol=1e-5)
    assert set(checkpoint.values) == {f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}


@pytest.mark.parametrize("act", ["relu", "gelu", "swish"])
def test_an_activation_that_is_not_built_is_named_with_those_that_are(act: str) -> None:
    config, ops = config_of("llama", hidden_act=act), ReferenceOps()
    with pytest.raises(ConfigError, match=f"'{act}' is not built: only silu and gelu_pytorch_tanh"):
        GatedMLP(ops, Loader(RandomCheckpoint(config), ops.prepare), config)
