from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from firstword.batch import Float32Array
from firstword.config import ModelConfig
from firstword.quant import dequantize
from tests.dense import Paged, RandomCheckpoint, config_of, dense_logits, whole_batch
from tests.harness import Model
from tests.weights.tiny_gguf import write_tiny_gemma3

IDS = [(7 * i * i + 5) % 50 for i in range(45)]


def gemma(**entries: Any) -> ModelConfig:
    """Six layers, the last of which sees everything; two rotary bases; a window of 9."""
    defaults = {
        "num_hidden_layers": 6,
        "num_key_value_heads": 1,
        "sliding_window": 9,
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": 100.0,
        "rope_theta": 10_000.0,
    }
    return config_of("gemma3", **{**defaults, **entries})


VARIANTS = {
    "plain": gemma(),
    "scale of its own": gemma(query_pre_attn_scalar=20.0),
    "capped logits": gemma(final_logit_softcapping=1.5),
    "stretched": gemma(rope_scaling={"rope_type": "linear", "factor": 8.0}),
    "untied": gemma(tie_word_embeddings=False),
    "every second layer slides": gemma(sliding_window_pattern=2, num_key_value_heads=2),
    "no layer slides": gemma(layer_types=["full_attention"] * 6),
    "window beyond the sequence": gemma(sliding_window=60),
    "window of one": gemma(sliding_window=1),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_a_dense_network(name: str) -> None:
    checkpoint = RandomCheckpoint(VARIANTS[name])
    logits = Paged(checkpoint).logits(IDS, len(IDS))
    expected = dense_logits(VARIANTS[name], checkpoint.values, IDS)
    np.testing.assert_allclose(logits, expected, atol=5e-5)


def test_each_variant_computes_something_else() -> None:
    seen: list[tuple[str, Float32Array]] = []
    for name, config in VARIANTS.items():
        logits = Paged(RandomCheckpoint(config)).logits(IDS, len(IDS))
        for other_name, other in seen:
            assert np.abs(other - logits).max() > 1e-3, (name, other_name)
        seen.append((name, logits))


def test_chunks_give_the_bits_of_the_whole() -> None:
    checkpoint = RandomCheckpoint(gemma())
    whole = Paged(checkpoint).logits(IDS, 45)
    for chunks in ((1,) * 45, (31, 1, 1, 12), (8, 10, 27)):
        np.testing.assert_array_equal(Paged(checkpoint).logits(IDS, *chunks), whole)


def test_a_model_file_gives_the_logits_of_a_dense_network(tmp_path: Path) -> None:
    path = write_tiny_gemma3(tmp_path / "m.gguf", window=7)
    model = Model(path, kv_dtype="float32")
    assert model.config.layer_types.count("sliding_attention") == 5
    assert model.config.sliding_window == 7
    weights = {
        name: dequantize(tensor).reshape(tensor.shape).astype(np.float64)
        for name, tensor in model.checkpoint.tensors.items()
    }
    kv = model.ops.new_kv_pool(model.spec, 4 * len(model.spec.groups))
    logits = model.network(whole_batch(IDS, 0, model.spec), kv)
    np.testing.assert_allclose(logits, dense_logits(model.config, weights, IDS), atol=5e-5)
