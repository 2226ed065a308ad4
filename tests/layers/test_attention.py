from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from firstword.batch import Float32Array
from firstword.config import ModelConfig
from firstword.layers.attention import Attention, AttentionShape, attention_spec, kv_cache_spec
from firstword.layers.rope import rope_spec
from firstword.ops.reference import ReferenceOps
from firstword.ops.reference_weight import ReferenceWeight
from firstword.weights.loader import Loader
from tests.dense import RandomCheckpoint, attention, config_of, frequencies, whole_batch

Layer = Attention[Float32Array, ReferenceWeight]


def gemma(layers: int, pattern: int, **entries: Any) -> ModelConfig:
    return config_of(
        "gemma3",
        num_hidden_layers=layers,
        sliding_window_pattern=pattern,
        sliding_window=512,
        **entries,
    )


def test_full_attention_is_one_group() -> None:
    spec = kv_cache_spec(config_of("llama", num_hidden_layers=5), "bfloat16")
    (group,) = spec.groups
    assert (group.kind, group.layers, group.window) == ("full", (0, 1, 2, 3, 4), None)
    assert (group.k_dtype, group.v_dtype) == ("bfloat16", "bfloat16")
    assert group.bytes_per_token == 5 * 2 * 2 * 8 * 2


def test_layers_that_all_slide_are_one_group() -> None:
    (group,) = kv_cache_spec(config_of("mistral", sliding_window=100), "float16").groups
    assert (group.kind, group.layers, group.window) == ("sliding", (0, 1), 100)


def test_full_and_sliding_groups_have_blocks_of_one_size() -> None:
    """Gemma 3 270M: 15 sliding layers and 3 full ones become six groups of three."""
    spec = kv_cache_spec(gemma(18, 6), "float16")
    assert [(g.kind, len(g.layers)) for g in spec.groups] == [("full", 3)] + [("sliding", 3)] * 5
    assert spec.groups[0].layers == (5, 11, 17)
    assert len({g.bytes_per_block(32) for g in spec.groups}) == 1
    assert [g.window for g in spec.groups] == [None] + [512] * 5


@pytest.mark.parametrize("config", [gemma(18, 6), gemma(7, 3), config_of("llama")])
def test_a_layer_knows_its_place(config: ModelConfig) -> None:
    spec = kv_cache_spec(config, "float16")
    for layer, kind in enumerate(config.layer_types):
        found = attention_spec(config, spec, layer, scale=0.5)
        assert spec.groups[found.group].layers[found.index_in_group] == layer == found.layer
        assert found.window == (512 if kind == "sliding_attention" else None)
        assert (found.num_heads, found.num_kv_heads, found.head_dim) == (4, 2, 8)
        assert (found.scale, found.softcap, found.sinks) == (0.5, None, None)


def build(config: ModelConfig, checkpoint: RandomCheckpoint, index: int) -> tuple[Layer, Any]:
    ops, spec = ReferenceOps("exact"), kv_cache_spec(config, "float32")
    shape = AttentionShape(
        spec=attention_spec(config, spec, index, scale=config.head_dim**-0.5),
        rope=rope_spec(config.head_dim, config.rope_theta, interleaved=config.rope_interleaved),
        hidden_size=config.hidden_size,
        bias=config.attention_bias,
        qk_norm_eps=config.rms_norm_eps if config.use_qk_norm else None,
    )
    load = Loader(checkpoint, ops.prepare).at("self_attn")
    return Attention(ops, load, shape), ops.new_kv_pool(spec, 4 * len(spec.groups))


@pytest.mark.parametrize(
    ("config", "index"),
    [
        (config_of("llama"), 1),
        (config_of("qwen2", num_key_value_heads=1), 0),
        (config_of("qwen3", rope_interleaved=True), 1),
        (replace(gemma(6, 3), sliding_window=4), 0),
        (replace(gemma(6, 3), sliding_window=4), 5),
    ],
    ids=["plain", "biases", "norms", "sliding", "full beside sliding"],
)
def test_chunks_over_pages_give_dense_attention(config: ModelConfig, index: int) -> None:
    checkpoint = RandomCheckpoint(config)
    layer, kv = build(config, checkpoint, index)
    x = np.random.default_rng(2).normal(0, 1, (40, 24)).astype(np.float32)
    out = [
        layer(x[a:b], whole_batch([0] * (b - a), a, kv.spec), kv)
        for a, b in ((0, 7), (7, 8), (8, 35), (35, 40))
    ]
    angles = frequencies(config, config.rope_theta)
    expected = attention(config, checkpoint.values, x.astype(np.float64), index, angles)
    np.testing.assert_allclose(np.concatenate(out), expected, atol=1e-5)


def test_a_layer_loads_what_its_shape_says_and_no_more() -> None:
    names = {}
    for model_type in ("llama", "qwen2", "qwen3"):
        checkpoint = RandomCheckpoint(config_of(model_type))
        build(checkpoint.config, checkpoint, 0)
        names[model_type] = {name.removeprefix("self_attn.") for name in checkpoint.values}
    plain = {f"{part}_proj.weight" for part in "qkvo"}
    assert names["llama"] == plain
    assert names["qwen2"] == plain | {f"{part}_proj.bias" for part in "qkv"}
    assert names["qwen3"] == plain | {"q_norm.weight", "k_norm.weight"}
