from __future__ import annotations

import json
import tracemalloc
from math import prod
from pathlib import Path
from typing import Any

import pytest

from firstword.config import ModelConfig
from firstword.errors import CheckpointError, ConfigError, FirstwordError, UnsupportedModelError
from firstword.plan.planner import Plan, make_plan, open_for_planning
from firstword.quant import GGMLType
from firstword.weights.checkpoint import ShapeCheckpoint, open_checkpoint
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
GEMMA_270M: dict[str, Any] = {
    "model_type": "gemma3_text",
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 640,
    "intermediate_size": 2048,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000.0,
    "rope_theta": 1000000.0,
    "sliding_window": 512,
    "vocab_size": 262144,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
}
MIB, GIB = 2**20, 2**30


def plan_of(folder: Path, entries: object, **asked: Any) -> Plan:
    path = folder / "config.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return make_plan(open_for_planning(path), name="it", **asked)


# --- The figures of the design ---


def test_llama_8b_costs_what_the_arithmetic_says(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, LLAMA_8B)
    assert plan.kv_bytes_per_token == 32 * 2 * 8 * 128 * 2 == 131_072
    assert (plan.users, plan.context) == (1, 4096)
    assert plan.kv_bytes_one_user == plan.kv_bytes_all_users == 512 * MIB
    assert plan.kv_bytes_full_context == 16 * GIB
    assert plan.max_context == 131_072
    assert plan.kv_bytes_without_grouping == 4 * plan.kv_bytes_per_token
    assert plan.num_parameters == 8_030_261_248
    assert plan.weight_bytes == 2 * 8_030_261_248
    assert plan.total_bytes == plan.weight_bytes + 512 * MIB
    assert (plan.num_layers, plan.num_heads, plan.num_kv_heads, plan.head_dim) == (32, 32, 8, 128)
    assert (plan.kv_dtype, plan.kv_value_bytes) == ("float16", 2)
    assert (plan.sliding_window, plan.num_sliding_layers) == (None, 0)


def test_llama_8b_for_many_users_and_at_full_context(tmp_path: Path) -> None:
    many = plan_of(tmp_path, LLAMA_8B, users=32, context=4096)
    assert many.kv_bytes_one_user == 512 * MIB
    assert many.kv_bytes_all_users == 16 * GIB
    whole = plan_of(tmp_path, LLAMA_8B, context=131_072)
    assert whole.kv_bytes_one_user == whole.kv_bytes_full_context == 16 * GIB


def test_heads_of_their_own_would_take_four_times_as_much(tmp_path: Path) -> None:
    shared = plan_of(tmp_path, LLAMA_8B)
    own = plan_of(tmp_path, {**LLAMA_8B, "num_key_value_heads": 32})
    assert own.kv_bytes_per_token == shared.kv_bytes_without_grouping == 524_288
    assert own.kv_bytes_without_grouping == own.kv_bytes_per_token


def test_q8_says_what_it_saves_and_costs(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, LLAMA_8B, kv_dtype="q8")
    assert plan.kv_bytes_per_token == 32 * 2 * 8 * (128 + 2)
    assert (plan.kv_value_bytes, plan.kv_scale_bytes) == (1, 2)
    assert plan.kv_bytes_per_token_float16 == 131_072
    assert all(0 < kl <= 0.003 for kl in plan.kv_mean_kl.values())
    assert plan_of(tmp_path, LLAMA_8B).kv_mean_kl == {}


@pytest.mark.parametrize(("kv_dtype", "factor"), [("bfloat16", 1), ("float32", 2)])
def test_the_type_of_the_cache_scales_it(tmp_path: Path, kv_dtype: str, factor: int) -> None:
    plan = plan_of(tmp_path, LLAMA_8B, kv_dtype=kv_dtype)
    assert plan.kv_bytes_per_token == factor * 131_072
    assert plan.kv_value_bytes == 2 * factor


def test_windows_bound_what_is_kept(tmp_path: Path) -> None:
    """Gemma 3 270M at 32k tokens: 108.5 MB instead of 604."""
    plan = plan_of(tmp_path, GEMMA_270M)
    per_layer = 2 * 1 * 256 * 2
    assert plan.kv_bytes_per_token == 18 * per_layer
    assert plan.kv_bytes_one_user == per_layer * (3 * 4096 + 15 * 512)
    assert plan.kv_bytes_full_context == per_layer * (3 * 32_768 + 15 * 512)
    assert plan.kv_bytes_full_context == 108_527_616
    assert 18 * per_layer * 32_768 == 603_979_776
    assert (plan.sliding_window, plan.num_sliding_layers) == (512, 15)
    assert plan.num_parameters == 268_098_176
    many = plan_of(tmp_path, GEMMA_270M, users=7, context=1000)
    assert many.kv_bytes_one_user == per_layer * (3 * 1000 + 15 * 512)
    assert many.kv_bytes_all_users == 7 * many.kv_bytes_one_user


def test_a_window_that_no_layer_uses_is_not_shown(tmp_path: Path) -> None:
    """Qwen2 configs have a window and a switch that turns it off."""
    entries = {
        **LLAMA_8B,
        "model_type": "qwen2",
        "sliding_window": 4096,
        "use_sliding_window": False,
    }
    plan = plan_of(tmp_path, entries)
    assert plan.num_sliding_layers == 0
    assert plan.sliding_window is None


def test_a_plan_allocates_nothing(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        plan = plan_of(tmp_path, LLAMA_8B, users=1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert plan.kv_bytes_all_users == 500 * GIB
    assert peak < 8 * MIB


# --- Against model files ---


@pytest.mark.parametrize("dtype", [GGMLType.F32, GGMLType.F16, GGMLType.Q8_0, GGMLType.Q4_0])
@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen2"])
def test_a_file_is_planned_from_its_headers(tmp_path: Path, family: str, dtype: GGMLType) -> None:
    path = tmp_path / "m.gguf"
    if family == "gemma3":
        write_tiny_gemma3(path, dtype=dtype)
    else:
        write_tiny_llama(path, dtype=dtype, architecture=family)
    checkpoint = open_checkpoint(path)
    plan = make_plan(checkpoint, name="tiny", context=100)
    tensors = checkpoint.tensors.values()
    assert plan.weight_bytes == sum(len(t.data) for t in tensors)
    assert plan.num_parameters == sum(prod(t.shape) for t in tensors)
    assert plan.weight_bytes < path.stat().st_size
    assert plan.model == "tiny"
    assert open_for_planning(path).config == checkpoint.config


def test_a_config_and_its_file_agree(tmp_path: Path) -> None:
    """The same model planned from its config.json and from its GGUF file."""
    path = write_tiny_llama(tmp_path / "m.gguf", architecture="qwen2")
    config = open_checkpoint(path).config
    shapes = ShapeCheckpoint(ModelConfig(**{**vars(config), "torch_dtype": "float32"}))
    from_file, from_config = (
        make_plan(c, name="it", users=3, context=77) for c in (open_for_planning(path), shapes)
    )
    assert from_file == from_config


# --- What can be opened, and what is refused ---


def test_a_folder_with_a_config_is_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    assert open_for_planning(tmp_path).config.hidden_size == 4096


def test_a_plan_can_be_printed_as_json(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, LLAMA_8B)
    again = json.loads(json.dumps(plan.to_dict()))
    assert again["total_bytes"] == plan.total_bytes
    assert again["kv_bytes_per_token"] == 131_072


@pytest.mark.parametrize("text", ["", "{", "[1]", "3", "null", '{"a": 1}', "\udcff"])
def test_what_is_no_config_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"config\.json: config: "):
        open_for_planning(path)


def test_a_config_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"gone\.json: config: not a readable JSON file"):
        open_for_planning(tmp_path / "gone.json")


@pytest.mark.parametrize(
    "key", ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "rms_norm_eps"]
)
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    entries = {name: value for name, value in LLAMA_8B.items() if name != key}
    with pytest.raises(CheckpointError, match=f"lacks .*{key}"):
        plan_of(tmp_path, entries)


def test_a_family_that_is_not_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="'mamba2' is not built"):
        plan_of(tmp_path, {**LLAMA_8B, "model_type": "mamba2"})


@pytest.mark.parametrize("context", [0, -5, 131_073])
def test_a_context_beyond_the_model_is_refused(tmp_path: Path, context: int) -> None:
    with pytest.raises(ConfigError, match=f"context is {context}: the model takes 1 to 131072"):
        plan_of(tmp_path, LLAMA_8B, context=context)


@pytest.mark.parametrize("users", [0, -1, 1_000_001])
def test_a_number_of_users_out_of_range_is_refused(tmp_path: Path, users: int) -> None:
    with pytest.raises(ConfigError, match=f"users is {users}: give 1 to 1,000,000"):
        plan_of(tmp_path, LLAMA_8B, users=users)


def test_a_short_context_is_planned_whole(tmp_path: Path) -> None:
    assert plan_of(tmp_path, {**LLAMA_8B, "max_position_embeddings": 2048}).context == 2048


MORE = ["sliding_window_pattern", "dtype", "text_config", "rope_parameters", "head_dim"]
STRANGE = [None, True, "x", -1, 0, 1.5, 2**40, 1e400, [], {}, [1], {"a": 1}]


@pytest.mark.parametrize("key", [*LLAMA_8B, *GEMMA_270M, *MORE])
def test_any_config_gives_a_plan_or_an_error_of_ours(tmp_path: Path, key: str) -> None:
    for base in (LLAMA_8B, GEMMA_270M):
        for value in STRANGE:
            try:
                plan_of(tmp_path, {**base, key: value})
            except FirstwordError as error:
                assert str(error)


@pytest.mark.parametrize("kind", ["llama3", "linear", "yarn"])
@pytest.mark.parametrize("key", [*LLAMA_8B["rope_scaling"], "beta_fast", "attention_factor"])
def test_any_rope_scaling_gives_a_plan_or_an_error_of_ours(
    tmp_path: Path, kind: str, key: str
) -> None:
    for value in STRANGE:
        scaling = {**LLAMA_8B["rope_scaling"], "rope_type": kind, key: value}
        try:
            plan_of(tmp_path, {**LLAMA_8B, "rope_scaling": scaling})
        except FirstwordError as error:
            assert str(error)
