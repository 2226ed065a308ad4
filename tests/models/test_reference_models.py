"""Families and rotary scalings that the catalogue models lack, against transformers' logits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from firstword.config import ModelConfig, RopeScaling
from firstword.layers.rope import rope_spec
from firstword.weights.checkpoint import open_checkpoint
from tests.logits import our_logits
from tests.models.reference_models import MODELS, rope_freqs

GOLDEN = Path(__file__).parents[1] / "golden" / "tiny_logits.npz"
TOLERANCE = 5e-5
"""Measured: 1.1e-5. The least of the faults tried, epsilon wrong by a factor of ten, gives 3e-4."""


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    ours = our_logits(model.write_gguf(tmp_path / "model.gguf"), model.token_ids)
    with np.load(GOLDEN) as golden:
        np.testing.assert_allclose(ours, golden[name], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_file_and_config_json_say_the_same(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    from_file = open_checkpoint(model.write_gguf(tmp_path / "model.gguf")).config
    from_json = ModelConfig.from_hf(model.config)
    if name == "llama-llama3":  # the file brings its frequencies as a tensor
        assert from_json.rope_scaling.kind == "llama3"
        from_json = replace(from_json, rope_scaling=RopeScaling())
    assert replace(from_file, rope_interleaved=False) == from_json


def test_llama3_scaling_of_a_config_gives_the_frequencies_of_the_file() -> None:
    config = MODELS["llama-llama3"].config
    scaling = RopeScaling.from_hf(config["rope_parameters"])
    from_config = rope_spec(16, 10000.0, scaling).inv_freq
    from_file = rope_spec(16, 10000.0, freq_factors=rope_freqs(config).tolist()).inv_freq
    assert from_config == pytest.approx(from_file, rel=1e-6)
