"""Networks a second time, as a textbook has them: float64, whole sequences, no cache, no pages.

The oracle of the models' tests: it shares no code with the layers but the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstword.batch import CopySpan, Float32Array, ForwardBatch
from firstword.config import ModelConfig
from firstword.kvcache.spec import KVCacheSpec
from firstword.models.registry import Model, build_model, model_kv_spec
from firstword.ops.reference import ReferenceMode, ReferenceOps
from firstword.quant import GGMLType, RawTensor
from firstword.weights.checkpoint import ShapeCheckpoint

Array = NDArray[np.float64]


class RandomCheckpoint(ShapeCheckpoint):
    """Every tensor that a model of this config asks for, with random values, in float32.

    Args:
        config: what the model is.
        extra: tensors that it has besides.
    """

    def __init__(self, config: ModelConfig, extra: Mapping[str, Array] | None = None) -> None:
        super().__init__(config, Path("random.gguf"))
        self.values: dict[str, Array] = {}
        self._extra = dict(extra or {})
        self._rng = np.random.default_rng(5)

    def has(self, name: str) -> bool:
        return name in self._extra or super().has(name)

    def names(self) -> Iterable[str]:
        return {**self.values, **self._extra}

    def tensor(self, name: str, shape: tuple[int, ...]) -> RawTensor | None:
        if not self.has(name):
            return None
        known = {**self.values, **self._extra}
        if name in known:
            values = known[name]
        elif name.endswith("norm.weight"):
            values = self._rng.normal(1.0, 0.3, shape)
        else:
            values = self._rng.normal(0.0, shape[-1] ** -0.5, shape)
        stored = np.ascontiguousarray(values, np.float32)
        self.values[name] = stored.astype(np.float64)
        return RawTensor(name, stored.shape, GGMLType.F32, stored.reshape(-1).view(np.uint8))


class Paged:
    """A network of the product over pages of its own, to be fed one sequence in chunks."""

    def __init__(self, checkpoint: RandomCheckpoint, mode: ReferenceMode = "exact") -> None:
        self.spec: KVCacheSpec = model_kv_spec(checkpoint.config, "float32")
        ops = ReferenceOps(mode)
        self.network: Model[Float32Array] = build_model(checkpoint, ops, self.spec)
        self.kv = ops.new_kv_pool(self.spec, 4 * len(self.spec.groups))

    def logits(self, ids: list[int], *chunks: int) -> Float32Array:
        """Logits [T, V] of all positions, computed in chunks of these sizes."""
        starts = np.cumsum((0, *chunks))
        assert starts[-1] == len(ids)
        parts = [
            self.network(whole_batch(ids[a:b], int(a), self.spec), self.kv)
            for a, b in pairwise(starts)
        ]
        return np.concatenate(parts)


def whole_batch(
    ids: list[int], start: int, spec: KVCacheSpec, copies: tuple[CopySpan, ...] = ()
) -> ForwardBatch:
    """One sequence's positions from `start`; group g has the blocks 4 g .. 4 g + 3."""
    count = len(ids)
    positions = np.arange(start, start + count, dtype=np.int32)
    tables = [np.arange(4 * g, 4 * g + 4, dtype=np.int32) for g in range(len(spec.groups))]
    size = spec.block_size
    return ForwardBatch(
        token_ids=np.array(ids, np.int32),
        positions=positions,
        query_start_loc=np.array([0, count], np.int32),
        seq_lens=np.array([start + count], np.int32),
        block_tables=tuple(table[None] for table in tables),
        slot_mapping=tuple(t[positions // size] * size + positions % size for t in tables),
        logits_indices=np.arange(count, dtype=np.int32),
        block_copies=copies,
    )


def dense_logits(config: ModelConfig, w: Mapping[str, Array], ids: list[int]) -> Array:
    """Logits [T, V] of a Llama or Gemma 3 for the tokens of one sequence."""
    gemma = config.model_type == "gemma3"
    embed = w["model.embed_tokens.weight"]
    x = embed[ids] * (math.sqrt(config.hidden_size) if gemma else 1.0)
    for i in range(config.num_hidden_layers):
        layer = {
            name.removeprefix(f"model.layers.{i}."): values
            for name, values in w.items()
            if name.startswith(f"model.layers.{i}.")
        }
        x = (gemma_layer if gemma else llama_layer)(config, layer, x, i)
    x = norm(x, w["model.norm.weight"], config.rms_norm_eps)
    logits = x @ w.get("lm_head.weight", embed).T
    cap = config.final_logit_softcapping
    return logits if cap is None else cap * np.tanh(logits / cap)


def llama_layer(config: ModelConfig, w: Mapping[str, Array], x: Array, index: int) -> Array:
    eps = config.rms_norm_eps
    angles = frequencies(config, config.rope_theta)
    x = x + attention(config, w, norm(x, w["input_layernorm.weight"], eps), index, angles)
    return x + mlp(config, w, norm(x, w["post_attention_layernorm.weight"], eps))


def gemma_layer(config: ModelConfig, w: Mapping[str, Array], x: Array, index: int) -> Array:
    eps = config.rms_norm_eps
    slides = config.layer_types[index] == "sliding_attention"
    if slides:
        angles = frequencies(config, config.rope_local_base_freq)
    else:
        angles = frequencies(config, config.rope_theta) / config.rope_scaling.factor
    attended = attention(config, w, norm(x, w["input_layernorm.weight"], eps), index, angles)
    x = x + norm(attended, w["post_attention_layernorm.weight"], eps)
    fed = mlp(config, w, norm(x, w["pre_feedforward_layernorm.weight"], eps))
    return x + norm(fed, w["post_feedforward_layernorm.weight"], eps)


def norm(x: Array, weight: Array, eps: float) -> Array:
    out: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight
    return out


def frequencies(config: ModelConfig, theta: float) -> Array:
    d = config.head_dim
    out: Array = 1.0 / theta ** (np.arange(0, d, 2) / d)
    return out


def attention(
    config: ModelConfig, w: Mapping[str, Array], x: Array, index: int, angles: Array
) -> Array:
    """Grouped-query attention of x [T, D] with all its own positions."""
    d, groups = config.head_dim, config.num_attention_heads // config.num_key_value_heads
    parts = []
    for name in ("q", "k", "v"):
        part = x @ w[f"self_attn.{name}_proj.weight"].T
        if config.attention_bias:
            part = part + w[f"self_attn.{name}_proj.bias"]
        part = part.reshape(len(x), -1, d)
        if config.use_qk_norm and name != "v":
            part = norm(part, w[f"self_attn.{name}_norm.weight"], config.rms_norm_eps)
        parts.append(part)
    q = rotate(parts[0], angles, config.rope_interleaved)
    k = rotate(parts[1], angles, config.rope_interleaved)
    window = config.sliding_window if config.layer_types[index] == "sliding_attention" else None
    scale = 1 / math.sqrt(config.query_pre_attn_scalar or d)
    out = np.zeros_like(q)
    for head in range(config.num_attention_heads):
        for t in range(len(x)):
            first = 0 if window is None else max(0, t - window + 1)
            scores = k[first : t + 1, head // groups] @ q[t, head] * scale
            weights = np.exp(scores - scores.max())
            out[t, head] = weights @ parts[2][first : t + 1, head // groups] / weights.sum()
    mixed: Array = out.reshape(len(x), -1) @ w["self_attn.o_proj.weight"].T
    return mixed


def rotate(x: Array, angles: Array, interleaved: bool) -> Array:
    """Each pair of x [T, H, d] as a complex number, turned by position x angle."""
    half = x.shape[-1] // 2
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    turned = (first + 1j * second) * np.exp(1j * np.arange(len(x))[:, None, None] * angles)
    if interleaved:
        out: Array = np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)
        return out
    return np.concatenate([turned.real, turned.imag], axis=-1)


def mlp(config: ModelConfig, w: Mapping[str, Array], x: Array) -> Array:
    gate = x @ w["mlp.gate_proj.weight"].T
    up = x @ w["mlp.up_proj.weight"].T
    if config.hidden_act == "silu":
        gate = gate / (1 + np.exp(-gate))
    else:
        inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
        gate = gate * 0.5 * (1 + np.tanh(inner))
    out: Array = (gate * up) @ w["mlp.down_proj.weight"].T
    return out


def config_of(model_type: str, **entries: Any) -> ModelConfig:
    """A small model's config; `entries` are keys of a config.json."""
    return ModelConfig.from_hf(
        {
            "model_type": model_type,
            "vocab_size": 50,
            "hidden_size": 24,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 64,
            "rms_norm_eps": 1e-5,
            "torch_dtype": "float32",
            **entries,
        }
    )
