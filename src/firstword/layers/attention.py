"""Grouped-query attention over the paged KV cache, and the KV groups that its layers form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic

from firstword.batch import ForwardBatch
from firstword.config import ModelConfig
from firstword.kvcache.spec import KVCacheSpec, KVGroup, split_evenly
from firstword.ops.protocol import AttentionSpec, Ops, RopeSpec, Tensor, Weight
from firstword.weights.loader import Loader


def kv_cache_spec(config: ModelConfig, kv_dtype: str) -> KVCacheSpec:
    """The KV groups of a model whose layers are full or sliding-window attention.

    Args:
        config: the model.
        kv_dtype: type of stored keys and values: float16, bfloat16 or float32.
    """
    groups = []
    for kind, layer_type in (("full", "full_attention"), ("sliding", "sliding_attention")):
        layers = tuple(i for i, t in enumerate(config.layer_types) if t == layer_type)
        if layers:
            groups.append(
                KVGroup(
                    name=kind,
                    kind="sliding" if kind == "sliding" else "full",
                    layers=layers,
                    num_kv_heads=config.num_key_value_heads,
                    head_dim=config.head_dim,
                    k_dtype=kv_dtype,
                    v_dtype=kv_dtype,
                    window=config.sliding_window if kind == "sliding" else None,
                )
            )
    return KVCacheSpec(split_evenly(tuple(groups)))


@dataclass(frozen=True)
class AttentionShape:
    """What one attention layer is made of.

    Args:
        spec: heads, scale and window, and where its K/V live.
        rope: its rotary frequencies.
        hidden_size: D.
        bias: q, k and v have biases.
        qk_norm_eps: epsilon of the norms of each head of q and k; None for no such norms.
    """

    spec: AttentionSpec
    rope: RopeSpec
    hidden_size: int
    bias: bool = False
    qk_norm_eps: float | None = None


def attention_spec(config: ModelConfig, kv: KVCacheSpec, layer: int, scale: float) -> AttentionSpec:
    """The attention of layer `layer`, with its place in the KV pool."""
    group, index = kv.location(layer)
    return AttentionSpec(
        layer=layer,
        group=group,
        index_in_group=index,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        scale=scale,
        window=kv.groups[group].window,
    )


class Attention(Generic[Tensor, Weight]):
    """q, k, v; optional head norms; rotary positions; attention; output projection."""

    def __init__(
        self, ops: Ops[Tensor, Weight], load: Loader[Weight], shape: AttentionShape
    ) -> None:
        spec, hidden = shape.spec, shape.hidden_size
        q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.ops, self.spec, self.rope, self.eps = ops, spec, shape.rope, shape.qk_norm_eps
        self.q_proj = load.matrix("q_proj.weight", q_size, hidden)
        self.k_proj = load.matrix("k_proj.weight", kv_size, hidden)
        self.v_proj = load.matrix("v_proj.weight", kv_size, hidden)
        self.o_proj = load.matrix("o_proj.weight", hidden, q_size)
        self.q_bias = load.vector("q_proj.bias", q_size) if shape.bias else None
        self.k_bias = load.vector("k_proj.bias", kv_size) if shape.bias else None
        self.v_bias = load.vector("v_proj.bias", kv_size) if shape.bias else None
        if self.eps is not None:
            self.q_norm = load.vector("q_norm.weight", spec.head_dim)
            self.k_norm = load.vector("k_norm.weight", spec.head_dim)

    def __call__(self, x: Tensor, batch: ForwardBatch, kv: Any) -> Tensor:
        """x [T, D] -> [T, D], storing the K/V of the batch's positions on the way."""
        ops = self.ops
        q = ops.linear(x, self.q_proj, self.q_bias)  # [T, H d]
        k = ops.linear(x, self.k_proj, self.k_bias)  # [T, K d]
        v = ops.linear(x, self.v_proj, self.v_bias)  # [T, K d]
        if self.eps is not None:
            q = ops.rms_norm(q, self.q_norm, self.eps)
            k = ops.rms_norm(k, self.k_norm, self.eps)
        q = ops.rope(q, batch, self.rope)
        k = ops.rope(k, batch, self.rope)
        ops.store_kv(k, v, batch, kv, self.spec)
        return ops.linear(ops.paged_attention(q, batch, kv, self.spec), self.o_proj)
