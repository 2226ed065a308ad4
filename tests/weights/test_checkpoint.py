from pathlib import Path

import numpy as np
import pytest

from firstword.config import ModelConfig
from firstword.errors import CheckpointError, ConfigError
from firstword.quant import GGMLType, dequantize
from firstword.weights.checkpoint import ShapeCheckpoint, open_checkpoint
from tests.weights.raw_gguf import RawGGUF, text_value, u32
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

HF = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
}


def shapes(**changes: object) -> ShapeCheckpoint:
    return ShapeCheckpoint(ModelConfig.from_hf({**HF, **changes}))


def test_a_checkpoint_is_the_file_in_hugging_face_words(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", chat_template="{{ messages }}")
    checkpoint = open_checkpoint(path)
    assert checkpoint.path == path
    assert checkpoint.num_bytes == path.stat().st_size
    assert len(checkpoint.fingerprint) == 32
    assert checkpoint.config.hidden_size == 64
    assert checkpoint.tokenizer_metadata["tokenizer.chat_template"] == "{{ messages }}"
    assert all(key.startswith("tokenizer.") for key in checkpoint.tokenizer_metadata)
    assert "general.architecture" not in checkpoint.tokenizer_metadata
    name = "model.layers.1.self_attn.q_proj.weight"
    assert checkpoint.has(name) and name in set(checkpoint.names())
    assert checkpoint.tensor(name, (64, 64)) is checkpoint.tensors[name]
    assert checkpoint.tensor("absent", (1,)) is None


def test_every_tensor_can_be_read(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_tiny_gemma3(tmp_path / "m.gguf", dtype=GGMLType.Q8_0))
    for name, tensor in checkpoint.tensors.items():
        assert name.startswith(("model.", "lm_head."))
        assert np.isfinite(dequantize(tensor)).all()


def test_a_config_that_cannot_be_is_the_fault_of_the_file(tmp_path: Path) -> None:
    llama = ("general.architecture", text_value("llama"))
    path = RawGGUF([llama, ("llama.block_count", u32(1))]).write(tmp_path)
    with pytest.raises(CheckpointError, match="metadata: config lacks vocab_size") as caught:
        open_checkpoint(path)
    assert caught.value.path == str(path)


@pytest.mark.real_model
def test_smollm2(smollm2_path: Path) -> None:
    checkpoint = open_checkpoint(smollm2_path)
    config = checkpoint.config
    assert (config.model_type, config.num_hidden_layers, config.hidden_size) == ("llama", 30, 576)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (9, 3, 64)
    assert (config.vocab_size, config.rope_theta) == (49152, 100000.0)
    assert config.tie_word_embeddings and config.rope_interleaved
    assert checkpoint.num_bytes == 98_362_432
    assert sum(t.num_values for t in checkpoint.tensors.values()) == 134_515_008


@pytest.mark.real_model
def test_gemma3_270m(gemma3_path: Path) -> None:
    checkpoint = open_checkpoint(gemma3_path)
    config = checkpoint.config
    assert (config.model_type, config.num_hidden_layers, config.hidden_size) == ("gemma3", 18, 640)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 1, 256)
    assert (config.sliding_window, config.layer_types.count("full_attention")) == (512, 3)
    assert config.tie_word_embeddings and not config.rope_interleaved
    # Norm weights hold 1 + w: they lie around 1 and above, not around 0.
    norm = dequantize(checkpoint.tensors["model.layers.0.self_attn.q_norm.weight"])
    assert norm.mean() > 0.5


# Shapes alone.


def test_shapes_take_no_memory() -> None:
    tensor = shapes().tensor("model.embed_tokens.weight", (128256, 4096))
    assert tensor is not None
    assert tensor.type is GGMLType.BF16
    assert tensor.nbytes == tensor.data.nbytes == 128256 * 4096 * 2
    assert tensor.data.strides == (0,)
    assert tensor.rows.shape == (128256, 8192)
    assert not tensor.data.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "ggml_type"),
    [("float32", GGMLType.F32), ("float16", GGMLType.F16), ("bfloat16", GGMLType.BF16)],
)
def test_shapes_have_the_type_of_the_config(dtype: str, ggml_type: GGMLType) -> None:
    tensor = shapes(torch_dtype=dtype).tensor("w", (2, 2))
    assert tensor is not None and tensor.type is ggml_type


def test_a_type_that_is_not_built_is_refused() -> None:
    with pytest.raises(ConfigError, match="float8_e4m3fn"):
        shapes(torch_dtype="float8_e4m3fn")


def test_optional_tensors_follow_the_config() -> None:
    attention = "model.layers.0.self_attn."
    plain = shapes()
    assert plain.has("lm_head.weight") and plain.has("model.norm.weight")
    assert not shapes(tie_word_embeddings=True).has("lm_head.weight")
    assert plain.tensor("rope_freqs.weight", (64,)) is None
    for name in ("q_proj.bias", "o_proj.bias", "q_norm.weight", "k_norm.weight"):
        assert not plain.has(attention + name)
    qwen2 = shapes(model_type="qwen2")
    assert qwen2.has(attention + "v_proj.bias") and not qwen2.has(attention + "o_proj.bias")
    assert not qwen2.has("model.layers.0.mlp.up_proj.bias")
    assert shapes(model_type="qwen3").has(attention + "q_norm.weight")
    assert list(plain.names()) == []
