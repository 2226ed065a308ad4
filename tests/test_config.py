from __future__ import annotations

from typing import Any

import pytest

from firstword.config import EngineConfig, ModelConfig, RopeScaling, parse_size
from firstword.errors import ConfigError

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
}
GEMMA: dict[str, Any] = {
    **LLAMA,
    "model_type": "gemma3_text",
    "num_hidden_layers": 7,
    "head_dim": 256,
    "sliding_window": 512,
}


def test_llama_config_derives_the_head_size_and_full_layers() -> None:
    config = ModelConfig.from_hf(LLAMA)
    assert config.head_dim == 128
    assert config.layer_types == ("full_attention",) * 32
    assert config.hidden_act == "silu"
    assert not config.use_qk_norm


def test_gemma_config_has_every_sixth_layer_full_and_a_tied_head() -> None:
    config = ModelConfig.from_hf(GEMMA)
    assert config.model_type == "gemma3"
    assert [i for i, t in enumerate(config.layer_types) if t == "full_attention"] == [5]
    assert config.tie_word_embeddings
    assert config.use_qk_norm
    assert config.hidden_act == "gelu_pytorch_tanh"


def test_text_part_of_a_multimodal_config_is_used() -> None:
    assert ModelConfig.from_hf({"model_type": "gemma3", "text_config": GEMMA}).head_dim == 256


def test_rope_settings_nested_by_layer_type() -> None:
    rope = {
        "full_attention": {"rope_theta": 5e5, "rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_theta": 1234.0, "rope_type": "default"},
    }
    config = ModelConfig.from_hf({**GEMMA, "rope_parameters": rope})
    assert config.rope_theta == 5e5
    assert config.rope_scaling == RopeScaling("linear", factor=8.0)
    assert config.rope_local_base_freq == 1234.0


def test_rope_settings_flat() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    config = ModelConfig.from_hf({**LLAMA, "rope_scaling": scaling})
    assert config.rope_scaling.kind == "llama3"
    assert config.rope_theta == 500000.0


def test_qwen2_has_biases_and_no_window_unless_it_uses_one() -> None:
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": False}
    config = ModelConfig.from_hf(qwen)
    assert config.attention_bias
    assert set(config.layer_types) == {"full_attention"}
    assert config.sliding_window is None
    del qwen["use_sliding_window"]  # off unless it says on
    assert set(ModelConfig.from_hf(qwen).layer_types) == {"full_attention"}


def test_qwen_layers_slide_only_behind_the_first_few() -> None:
    qwen = {
        **LLAMA,
        "model_type": "qwen3",
        "sliding_window": 4096,
        "use_sliding_window": True,
        "max_window_layers": 28,
    }
    config = ModelConfig.from_hf(qwen)
    assert config.layer_types == ("full_attention",) * 28 + ("sliding_attention",) * 4
    assert config.sliding_window == 4096


@pytest.mark.parametrize(
    "entries",
    [
        {"torch_dtype": "float16"},
        {"dtype": "float16"},
        {"dtype": "float16", "text_config": GEMMA},
        {"torch_dtype": "bfloat16", "text_config": {**GEMMA, "dtype": "float16"}},
    ],
)
def test_the_type_of_the_weights_by_either_name(entries: dict[str, Any]) -> None:
    assert ModelConfig.from_hf({**LLAMA, **entries}).torch_dtype == "float16"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab_size": None}, "lacks vocab_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 2**40}, "num_hidden_layers"),
        ({"num_key_value_heads": 5}, "not a multiple of num_key_value_heads 5"),
        ({"head_dim": 65}, "head_dim 65 is odd"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "'longrope' is not built"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 32 layers"),
        ({"layer_types": ["sliding_attention"] * 32}, "no sliding_window"),
        ({"layer_types": ["linear_attention"] * 32}, "'linear_attention', which is not built"),
        ({"sliding_window": 1.5}, "sliding_window is 1.5"),
        ({"sliding_window": -3}, "sliding_window is -3"),
        ({"rope_theta": 0}, "rope_theta is 0: expected a number above 1"),
        ({"rope_theta": "x"}, "rope_theta is 'x'"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"text_config": 3}, "text_config is 3"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "x"}}, "rope_scaling factor is 'x'"),
        (
            {"rope_scaling": {"rope_type": "llama3", "low_freq_factor": 4}},
            "low_freq_factor 4 is not below high_freq_factor 4.0",
        ),
    ],
)
def test_bad_configs_are_refused_by_name(change: dict[str, Any], words: str) -> None:
    entries = {k: v for k, v in {**LLAMA, **change}.items() if v is not None}
    with pytest.raises(ConfigError, match=words):
        ModelConfig.from_hf(entries)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens is 0"),
        ({"max_model_len": 1}, "max_model_len is 1"),
        (
            {"kv_dtype": "int8"},
            "kv_dtype is 'int8': it must be one of float16, bfloat16, float32, q8",
        ),
        ({"kv_memory_bytes": 0}, "kv_memory_bytes is 0"),
        ({"memory_bytes": 0}, "memory_bytes is 0"),
        ({"max_queued_requests": 0}, "max_queued_requests is 0"),
        ({"max_queued_tokens": 0}, "max_queued_tokens is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 18446744073709551616"),
        ({"num_top_logprobs": -1}, "num_top_logprobs is -1"),
        ({"step_time_budget_ms": 0.0}, "step_time_budget_ms is 0.0"),
        ({"step_time_budget_ms": float("nan")}, "step_time_budget_ms is nan"),
    ],
)
def test_engine_settings_have_ranges(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EngineConfig(**options)


def test_engine_settings_that_may_be_left_open() -> None:
    config = EngineConfig()
    assert config.max_queued_requests is None
    assert config.max_queued_tokens is config.memory_bytes is config.kv_memory_bytes is None


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("2000000000", 2_000_000_000),
        ("800M", 800 * 2**20),
        ("2G", 2 * 2**30),
        ("1.5GiB", 3 * 2**29),
        ("64 kb", 64 * 2**10),
        ("1T", 2**40),
    ],
)
def test_sizes(text: str, num_bytes: int) -> None:
    assert parse_size(text, "memory") == num_bytes


@pytest.mark.parametrize("text", ["", "G", "-1G", "2X", "1,5G", "1e9", "nan", "٣", "9" * 400])
def test_sizes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"memory is .* 800M"):
        parse_size(text, "memory")
