from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from firstword.config import ModelConfig
from firstword.errors import CheckpointError
from firstword.quant import dequantize
from tests.dense import Paged, RandomCheckpoint, config_of, dense_logits, whole_batch
from tests.harness import Model
from tests.weights.tiny_gguf import write_tiny_llama

IDS = [(7 * i * i + 5) % 50 for i in range(45)]  # more than one block
VARIANTS = {
    "llama": config_of("llama"),
    "untied": config_of("llama", tie_word_embeddings=False),
    "tied": config_of("llama", tie_word_embeddings=True),
    "interleaved": config_of("llama", rope_interleaved=True),
    "heads of another size": config_of("llama", head_dim=12),
    "no grouping": config_of("llama", num_key_value_heads=4),
    "one kv head": config_of("llama", num_key_value_heads=1),
    "with biases": config_of("llama", attention_bias=True),
    "mistral, every layer slides": config_of("mistral", sliding_window=9),
    "qwen2 has biases": config_of("qwen2"),
    "qwen3 norms q and k": config_of("qwen3", rope_theta=1e6),
    "all at once": config_of("qwen3", attention_bias=True, rope_interleaved=True, head_dim=6),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_a_dense_network(name: str) -> None:
    checkpoint = RandomCheckpoint(VARIANTS[name])
    logits = Paged(checkpoint).logits(IDS, len(IDS))
    expected = dense_logits(VARIANTS[name], checkpoint.values, IDS)
    np.testing.assert_allclose(logits, expected, atol=2e-5)


def test_each_variant_computes_something_else() -> None:
    """A flag that is read but not used would pass any comparison with a twin that ignores it."""
    base = config_of("llama", tie_word_embeddings=True)
    plain = Paged(RandomCheckpoint(base)).logits(IDS, len(IDS))
    for changed in (
        config_of("llama", tie_word_embeddings=True, rope_interleaved=True),
        config_of("llama", tie_word_embeddings=True, rope_theta=100.0),
        config_of("llama", tie_word_embeddings=True, sliding_window=9),
        config_of("llama", tie_word_embeddings=True, rms_norm_eps=0.1),
    ):
        other = Paged(RandomCheckpoint(changed)).logits(IDS, len(IDS))
        assert np.abs(other - plain).max() > 1e-3


def test_chunks_give_the_bits_of_the_whole() -> None:
    checkpoint = RandomCheckpoint(config_of("qwen2"))
    whole = Paged(checkpoint).logits(IDS, 45)
    for chunks in ((1,) * 45, (31, 1, 1, 12), (40, 5)):
        np.testing.assert_array_equal(Paged(checkpoint).logits(IDS, *chunks), whole)


def test_logits_are_of_the_rows_asked_for() -> None:
    paged = Paged(RandomCheckpoint(config_of("llama")))
    batch = whole_batch(IDS, 0, paged.spec)
    all_rows = paged.network(batch, paged.kv)
    object.__setattr__(batch, "logits_indices", np.array([44, 3, 3], np.int32))
    np.testing.assert_array_equal(paged.network(batch, paged.kv), all_rows[[44, 3, 3]])


def test_divisors_of_a_checkpoint_slow_the_rotation() -> None:
    """rope_freqs.weight (Llama 3.1 in GGUF) divides the frequencies."""
    divisors = np.full(4, 4.0)
    config = config_of("llama", rope_theta=100.0)
    divided = Paged(RandomCheckpoint(config, {"rope_freqs.weight": divisors})).logits(IDS, 45)
    scaled = config_of(
        "llama", rope_theta=100.0, rope_scaling={"rope_type": "linear", "factor": 4.0}
    )
    np.testing.assert_allclose(Paged(RandomCheckpoint(scaled)).logits(IDS, 45), divided, atol=1e-6)
    plain = Paged(RandomCheckpoint(config)).logits(IDS, 45)
    assert np.abs(plain - divided).max() > 1e-3


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_a_model_file_gives_the_logits_of_a_dense_network(
    tmp_path: Path, architecture: str
) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", architecture=architecture)
    model = Model(path, kv_dtype="float32")
    weights = {
        name: dequantize(tensor).reshape(tensor.shape).astype(np.float64)
        for name, tensor in model.checkpoint.tensors.items()
    }
    kv = model.ops.new_kv_pool(model.spec, 4)
    logits = model.network(whole_batch(IDS, 0, model.spec), kv)
    np.testing.assert_allclose(logits, dense_logits(model.config, weights, IDS), atol=2e-5)
    assert model.config.rope_interleaved == (architecture == "llama")


class Lacking(RandomCheckpoint):
    """A checkpoint without one of its tensors."""

    def __init__(self, config: ModelConfig, missing: str) -> None:
        super().__init__(config)
        self._missing = missing

    def has(self, name: str) -> bool:
        return name != self._missing and super().has(name)


@pytest.mark.parametrize(
    ("model_type", "missing"),
    [
        ("qwen2", "model.layers.1.self_attn.k_proj.bias"),
        ("qwen3", "model.layers.0.self_attn.q_norm.weight"),
        ("llama", "model.layers.1.mlp.down_proj.weight"),
        ("llama", "model.norm.weight"),
    ],
)
def test_a_missing_tensor_is_named(model_type: str, missing: str) -> None:
    with pytest.raises(CheckpointError, match="is missing") as caught:
        Paged(Lacking(config_of(model_type), missing))
    assert missing in caught.value.where


def test_without_an_output_matrix_the_embedding_is_it() -> None:
    """GGUF files of tied models have none, and do not say so otherwise."""
    checkpoint = Lacking(config_of("llama"), "lm_head.weight")
    logits = Paged(checkpoint).logits(IDS, 45)
    tied = dense_logits(checkpoint.config, checkpoint.values, IDS)
    np.testing.assert_allclose(logits, tied, atol=2e-5)
