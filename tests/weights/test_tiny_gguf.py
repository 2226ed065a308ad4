"""The builder that other tests stand on writes what it says."""

from pathlib import Path

import numpy as np
import pytest

from firstword.quant import DEQUANTIZABLE, GGMLType, dequantize
from firstword.weights.checkpoint import open_checkpoint
from tests.weights.tiny_gguf import TinyOptions, write_tiny_gemma3, write_tiny_llama


def test_tiny_llama_is_what_its_options_say(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", layers=3, context=128))
    config = checkpoint.config
    assert (config.model_type, config.num_hidden_layers, config.head_dim) == ("llama", 3, 16)
    assert config.max_position_embeddings == 128
    assert config.rope_interleaved and not config.tie_word_embeddings
    assert "tokenizer.chat_template" not in checkpoint.tokenizer_metadata


def test_tiny_gemma3_has_the_family_traits(tmp_path: Path) -> None:
    config = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf")).config
    assert config.model_type == "gemma3"
    assert config.sliding_window == 48
    assert config.layer_types.count("full_attention") == 1
    assert config.head_dim != config.hidden_size // config.num_attention_heads
    assert config.tie_word_embeddings and config.use_qk_norm


@pytest.mark.parametrize("dtype", sorted(DEQUANTIZABLE), ids=lambda t: t.name)
def test_weights_of_any_type_keep_the_variance_of_their_input(
    tmp_path: Path, dtype: GGMLType
) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", hidden=256, intermediate=512, dtype=dtype)
    tensor = open_checkpoint(path).tensors["model.layers.1.mlp.down_proj.weight"]
    assert tensor.type is dtype
    values = dequantize(tensor)
    assert abs(values.mean()) < 0.01
    assert values.std() * np.sqrt(512) == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_other_members_of_the_llama_family(tmp_path: Path, architecture: str) -> None:
    options: TinyOptions = {"architecture": architecture, "seed": 3}
    checkpoint = open_checkpoint(write_tiny_llama(tmp_path / "m.gguf", **options))
    assert checkpoint.config.model_type == architecture
    assert checkpoint.config.attention_bias == (architecture == "qwen2")
    assert checkpoint.has("model.layers.0.self_attn.q_norm.weight") == (architecture == "qwen3")
    assert not checkpoint.config.rope_interleaved


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    first = write_tiny_llama(tmp_path / "a.gguf", seed=5).read_bytes()
    assert write_tiny_llama(tmp_path / "b.gguf", seed=5).read_bytes() == first
    assert write_tiny_llama(tmp_path / "c.gguf", seed=6).read_bytes() != first
