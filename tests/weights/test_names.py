import math
import struct
from pathlib import Path

import pytest

from firstword.config import ModelConfig
from firstword.errors import CheckpointError, UnsupportedModelError
from firstword.weights.gguf import GGUFFile
from firstword.weights.gguf_values import ValueType
from firstword.weights.names import architecture_of, hf_config, hf_tensor_name, hf_tensors
from tests.weights.raw_gguf import Info, RawGGUF, array, string, text_value, u32, value

Value = int | float | str | bool | bytes


def packed(item: Value) -> bytes:
    """A metadata value; bytes are one that is packed already."""
    if isinstance(item, bytes):
        return item
    if isinstance(item, bool):
        return value(ValueType.BOOL, bytes([item]))
    if isinstance(item, int):
        return u32(item)
    if isinstance(item, float):
        return value(ValueType.FLOAT32, struct.pack("<f", item))
    return text_value(item)


BASE: dict[str, Value] = {
    "block_count": 12,
    "context_length": 4096,
    "embedding_length": 64,
    "feed_forward_length": 128,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 500000.0,
}


def open_with(
    folder: Path, architecture: str = "llama", *names: str, **changes: Value | None
) -> GGUFFile:
    """A file with the base metadata, changed (dots as __), and tensors of 8 values."""
    keys = {**BASE, **{k.replace("__", "."): v for k, v in changes.items()}}
    pairs: list[tuple[str | bytes, bytes]] = [("general.architecture", packed(architecture))]
    pairs += [(f"{architecture}.{k}", packed(v)) for k, v in keys.items() if v is not None]
    infos = [Info(name, (1, 8), offset=32 * i) for i, name in enumerate(names)]
    return GGUFFile.open(RawGGUF(pairs, infos, bytes(32 * len(infos))).write(folder))


@pytest.mark.parametrize(
    ("architecture", "gguf_name", "hf_name"),
    [
        ("llama", "token_embd.weight", "model.embed_tokens.weight"),
        ("llama", "output_norm.weight", "model.norm.weight"),
        ("llama", "output.weight", "lm_head.weight"),
        ("llama", "rope_freqs.weight", "rope_freqs.weight"),
        ("llama", "blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"),
        ("llama", "blk.31.attn_q.weight", "model.layers.31.self_attn.q_proj.weight"),
        ("llama", "blk.1.attn_k.weight", "model.layers.1.self_attn.k_proj.weight"),
        ("qwen2", "blk.1.attn_v.bias", "model.layers.1.self_attn.v_proj.bias"),
        ("llama", "blk.1.attn_output.weight", "model.layers.1.self_attn.o_proj.weight"),
        ("llama", "blk.1.ffn_gate.weight", "model.layers.1.mlp.gate_proj.weight"),
        ("llama", "blk.1.ffn_up.weight", "model.layers.1.mlp.up_proj.weight"),
        ("llama", "blk.1.ffn_down.weight", "model.layers.1.mlp.down_proj.weight"),
        ("llama", "blk.1.ffn_norm.weight", "model.layers.1.post_attention_layernorm.weight"),
        ("llama", "blk.1.attn_rot_embd.weight", "model.layers.1.self_attn.rotary_emb.inv_freq"),
        ("qwen3", "blk.1.attn_q_norm.weight", "model.layers.1.self_attn.q_norm.weight"),
        ("qwen3", "blk.1.attn_k_norm.weight", "model.layers.1.self_attn.k_norm.weight"),
        ("gemma3", "blk.1.ffn_norm.weight", "model.layers.1.pre_feedforward_layernorm.weight"),
        (
            "gemma3",
            "blk.1.post_attention_norm.weight",
            "model.layers.1.post_attention_layernorm.weight",
        ),
        (
            "gemma3",
            "blk.1.post_ffw_norm.weight",
            "model.layers.1.post_feedforward_layernorm.weight",
        ),
        ("llama", "blk.1.ffn_gate_exps.weight", "blk.1.ffn_gate_exps.weight"),
        ("llama", "blk.01.attn_q.weight", "blk.01.attn_q.weight"),
        ("llama", "something.else", "something.else"),
    ],
)
def test_tensor_names(architecture: str, gguf_name: str, hf_name: str) -> None:
    assert hf_tensor_name(architecture, gguf_name) == hf_name


def test_tensors_carry_their_hugging_face_names(tmp_path: Path) -> None:
    tensors = hf_tensors(open_with(tmp_path, "llama", "blk.0.attn_q.weight"))
    assert list(tensors) == ["model.layers.0.self_attn.q_proj.weight"]
    assert tensors["model.layers.0.self_attn.q_proj.weight"].name in tensors


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    file = open_with(tmp_path, "llama", "output.weight", "lm_head.weight")
    with pytest.raises(CheckpointError, match=r"'lm_head.weight': is a second"):
        hf_tensors(file)


def test_a_llama_config(tmp_path: Path) -> None:
    config = ModelConfig.from_hf(hf_config(open_with(tmp_path, "llama", "token_embd.weight")))
    assert config.model_type == "llama"
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (8, 64, 128)
    assert (config.num_hidden_layers, config.max_position_embeddings) == (12, 4096)
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (4, 2, 16)
    assert config.rms_norm_eps == 1e-5  # not the 9.99999974737875e-06 of single precision
    assert config.rope_theta == 500000.0
    assert config.rope_interleaved and config.tie_word_embeddings
    assert config.hidden_act == "silu"
    assert not config.attention_bias and not config.use_qk_norm
    assert config.rope_scaling.kind == "default"


def test_what_the_tensors_say(tmp_path: Path) -> None:
    config = hf_config(open_with(tmp_path, "qwen2", "output.weight", "blk.0.attn_q.bias"))
    assert config["tie_word_embeddings"] is False
    assert config["attention_bias"] is True
    assert config["rope_interleaved"] is False
    assert "vocab_size" not in config


def test_tokens_are_at_most_the_rows_of_the_embedding(tmp_path: Path) -> None:
    tokens = array(ValueType.STRING, 9, string("t") * 9)
    raw = RawGGUF(
        [("general.architecture", packed("llama")), ("tokenizer.ggml.tokens", tokens)],
        [Info("token_embd.weight", (1, 8))],
        bytes(32),
    )
    with pytest.raises(CheckpointError, match=r"tokens'.*9 tokens, but .* has 8 rows"):
        hf_config(GGUFFile.open(raw.write(tmp_path)))
    raw.infos = []
    assert hf_config(GGUFFile.open(raw.write(tmp_path)))["vocab_size"] == 9


# Heads.


def test_head_dim_is_the_key_length_then_the_rotary_length(tmp_path: Path) -> None:
    said = open_with(tmp_path, attention__key_length=32, rope__dimension_count=32)
    assert hf_config(said)["head_dim"] == 32
    assert hf_config(open_with(tmp_path, rope__dimension_count=24))["head_dim"] == 24
    assert hf_config(open_with(tmp_path))["head_dim"] == 16
    assert "head_dim" not in hf_config(open_with(tmp_path, attention__head_count=0))


def test_heads_that_are_not_built_are_refused(tmp_path: Path) -> None:
    unequal = open_with(tmp_path, attention__key_length=32, attention__value_length=16)
    with pytest.raises(UnsupportedModelError, match=r"value_length'.*is 16, but keys have 32"):
        hf_config(unequal)
    partial = open_with(tmp_path, attention__key_length=32, rope__dimension_count=16)
    with pytest.raises(UnsupportedModelError, match=r"dimension_count'.*is 16 of 32"):
        hf_config(partial)


def test_values_per_layer_count_when_they_are_all_the_same(tmp_path: Path) -> None:
    same = array(ValueType.INT32, 3, struct.pack("<3i", 2, 2, 2))
    file = open_with(tmp_path, attention__head_count_kv=same)
    assert hf_config(file)["num_key_value_heads"] == 2
    different = array(ValueType.INT32, 3, struct.pack("<3i", 2, 4, 2))
    with pytest.raises(UnsupportedModelError, match=r"head_count_kv'.*layer to layer"):
        hf_config(open_with(tmp_path, attention__head_count_kv=different))


# Rotary scaling.


def test_linear_scaling(tmp_path: Path) -> None:
    file = open_with(tmp_path, rope__scaling__type="linear", rope__scaling__factor=8.0)
    scaling = ModelConfig.from_hf({**hf_config(file), "vocab_size": 8}).rope_scaling
    assert (scaling.kind, scaling.factor) == ("linear", 8.0)


def test_yarn_scaling(tmp_path: Path) -> None:
    file = open_with(
        tmp_path,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32768,
        rope__scaling__yarn_beta_fast=16.0,
    )
    scaling = ModelConfig.from_hf({**hf_config(file), "vocab_size": 8}).rope_scaling
    assert (scaling.kind, scaling.factor) == ("yarn", 4.0)
    assert scaling.original_max_position_embeddings == 32768
    assert (scaling.beta_fast, scaling.beta_slow) == (16.0, 1.0)
    assert scaling.attention_factor is None


def test_a_yarn_factor_of_its_own_multiplies_the_usual_one(tmp_path: Path) -> None:
    file = open_with(
        tmp_path,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__attn_factor=0.5,
    )
    scaling = hf_config(file)["rope_scaling"]
    assert isinstance(scaling, dict)
    assert scaling["original_max_position_embeddings"] == 4096
    assert scaling["attention_factor"] == pytest.approx(0.5 * (0.1 * math.log(4.0) + 1))


def test_no_scaling_and_scaling_not_built(tmp_path: Path) -> None:
    assert "rope_scaling" not in hf_config(open_with(tmp_path, rope__scaling__type="none"))
    with pytest.raises(UnsupportedModelError, match=r"scaling.type'.*'longrope'"):
        hf_config(open_with(tmp_path, rope__scaling__type="longrope"))


# Gemma 3.


def gemma(folder: Path, **changes: Value | None) -> ModelConfig:
    window: dict[str, Value | None] = {"attention__sliding_window": 512}
    file = open_with(folder, "gemma3", "token_embd.weight", **{**window, **changes})
    return ModelConfig.from_hf(hf_config(file))


def test_gemma3_fills_what_gguf_leaves_unsaid(tmp_path: Path) -> None:
    config = gemma(tmp_path, attention__key_length=256)
    assert config.hidden_act == "gelu_pytorch_tanh"
    assert config.query_pre_attn_scalar == 256
    assert config.rope_local_base_freq == 10000.0
    assert config.sliding_window == 512
    assert [i for i, kind in enumerate(config.layer_types) if kind == "full_attention"] == [5, 11]
    assert not config.rope_interleaved


def test_gemma3_27b_scales_scores_by_another_number(tmp_path: Path) -> None:
    config = gemma(
        tmp_path,
        block_count=62,
        embedding_length=5376,
        attention__head_count=32,
        attention__head_count_kv=16,
        attention__key_length=128,
    )
    assert config.query_pre_attn_scalar == 168


def test_gemma3_patterns_that_the_file_states(tmp_path: Path) -> None:
    config = gemma(tmp_path, attention__sliding_window_pattern=4)
    full = [i for i, kind in enumerate(config.layer_types) if kind == "full_attention"]
    assert full == [3, 7, 11]
    slides = array(ValueType.BOOL, 12, b"\0" + b"\1" * 11)
    config = gemma(tmp_path, attention__sliding_window_pattern=slides)
    assert config.layer_types == ("full_attention", *["sliding_attention"] * 11)
    with pytest.raises(CheckpointError, match=r"pattern'.*2 entries for 12 layers"):
        gemma(tmp_path, attention__sliding_window_pattern=array(ValueType.BOOL, 2, b"\0\1"))
    with pytest.raises(CheckpointError, match=r"pattern'.*is 0"):
        gemma(tmp_path, attention__sliding_window_pattern=0)


def test_a_local_rotary_base_that_the_file_states(tmp_path: Path) -> None:
    assert gemma(tmp_path, rope__freq_base_swa=20000.0).rope_local_base_freq == 20000.0


# Refusals.


def test_architectures_that_are_not_built_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'mamba', .*llama, qwen2, qwen3, gemma3"):
        architecture_of(open_with(tmp_path, "mamba"))


def test_a_file_that_names_no_architecture(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="found nothing"):
        architecture_of(GGUFFile.open(RawGGUF().write(tmp_path)))
    number = RawGGUF([("general.architecture", u32(3))]).write(tmp_path)
    with pytest.raises(CheckpointError, match="found 3"):
        architecture_of(GGUFFile.open(number))


@pytest.mark.parametrize(
    ("key", "bad"),
    [
        ("block_count", "many"),
        ("block_count", True),
        ("block_count", 1.5),
        ("block_count", 2**31),
        ("attention.head_count", array(ValueType.STRING, 1, string("4"))),
        ("attention.layer_norm_rms_epsilon", "small"),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("attention.layer_norm_rms_epsilon", -1e-5),
        ("rope.freq_base", float("inf")),
        ("rope.freq_base", 0.0),
        ("rope.freq_base", True),
        ("rope.freq_base", value(ValueType.FLOAT64, struct.pack("<d", 1e300))),
    ],
)
def test_values_of_the_wrong_type_or_size_are_refused(tmp_path: Path, key: str, bad: Value) -> None:
    file = open_with(tmp_path, "llama", **{key.replace(".", "__"): bad})
    with pytest.raises(CheckpointError, match=f"'llama.{key}': expected"):
        hf_config(file)


@pytest.mark.parametrize(
    ("key", "bad", "word"),
    [
        ("expert_count", 8, "mixture of experts"),
        ("attn_logit_softcapping", 50.0, "capped attention"),
        ("rope.scaling.yarn_log_multiplier", 0.1, "YaRN"),
    ],
)
def test_features_that_are_not_built_are_refused(
    tmp_path: Path, key: str, bad: Value, word: str
) -> None:
    file = open_with(tmp_path, "llama", **{key.replace(".", "__"): bad})
    with pytest.raises(UnsupportedModelError, match=word):
        hf_config(file)


def test_zeros_that_say_there_is_none(tmp_path: Path) -> None:
    file = open_with(
        tmp_path, expert_count=0, attention__sliding_window=0, final_logit_softcapping=0.0
    )
    config = hf_config(file)
    assert "sliding_window" not in config and "final_logit_softcapping" not in config
