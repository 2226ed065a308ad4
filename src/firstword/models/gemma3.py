"""Gemma 3, text only (Gemma Team, 2025, arXiv 2503.19786).

Unlike the Llama family: norms on both sides of each half, embeddings scaled by the square root of
the hidden size, most layers with a sliding window and a rope base of their own, q and k normed
per head, gelu gates, a tied head.
"""

from __future__ import annotations

import math
from typing import Any, Generic

from firstword.batch import ForwardBatch
from firstword.config import ModelConfig
from firstword.kvcache.spec import KVCacheSpec
from firstword.layers.attention import Attention, AttentionShape, attention_spec
from firstword.layers.mlp import GatedMLP
from firstword.layers.rope import rope_spec
from firstword.ops.protocol import Ops, RopeSpec, Tensor, Weight
from firstword.weights.loader import Loader


class DecoderLayer(Generic[Tensor, Weight]):
    """Attention and feed-forward, each between two norms, each adding to the stream."""

    def __init__(
        self,
        config: ModelConfig,
        ops: Ops[Tensor, Weight],
        load: Loader[Weight],
        attention: AttentionShape,
    ) -> None:
        self.ops, self.eps, size = ops, config.rms_norm_eps, config.hidden_size
        self.attention = Attention(ops, load.at("self_attn"), attention)
        self.mlp = GatedMLP(ops, load.at("mlp"), config)
        self.before_attention = load.vector("input_layernorm.weight", size)
        self.after_attention = load.vector("post_attention_layernorm.weight", size)
        self.before_mlp = load.vector("pre_feedforward_layernorm.weight", size)
        self.after_mlp = load.vector("post_feedforward_layernorm.weight", size)

    def __call__(
        self, x: Tensor, residual: Tensor | None, batch: ForwardBatch, kv: Any
    ) -> tuple[Tensor, Tensor]:
        """What the layer adds to the stream [T, D], and the stream before it [T, D]."""
        ops, eps = self.ops, self.eps
        x, residual = ops.add_rms_norm(x, residual, self.before_attention, eps)
        x = ops.rms_norm(self.attention(x, batch, kv), self.after_attention, eps)
        x, residual = ops.add_rms_norm(x, residual, self.before_mlp, eps)
        return ops.rms_norm(self.mlp(x), self.after_mlp, eps), residual


class Gemma3(Generic[Tensor, Weight]):
    """A whole network: token ids in, logits of the wanted rows out."""

    def __init__(
        self,
        config: ModelConfig,
        ops: Ops[Tensor, Weight],
        load: Loader[Weight],
        kv: KVCacheSpec,
    ) -> None:
        self.ops, self.eps = ops, config.rms_norm_eps
        self.softcap = config.final_logit_softcapping
        self.embed_scale = math.sqrt(config.hidden_size)
        self.embed = load.matrix(
            "model.embed_tokens.weight", config.vocab_size, config.hidden_size, role="embedding"
        )
        ropes = self._ropes(config)
        self.layers = [
            DecoderLayer(
                config,
                ops,
                load.at(f"model.layers.{i}"),
                AttentionShape(
                    spec=attention_spec(config, kv, i, scale=self._scale(config)),
                    rope=ropes[layer_type],
                    hidden_size=config.hidden_size,
                    qk_norm_eps=config.rms_norm_eps,
                ),
            )
            for i, layer_type in enumerate(config.layer_types)
        ]
        self.norm = load.vector("model.norm.weight", config.hidden_size)
        head = load.optional_matrix("lm_head.weight", config.vocab_size, config.hidden_size)
        self.head = self.embed if head is None else head

    @staticmethod
    def _ropes(config: ModelConfig) -> dict[str, RopeSpec]:
        """Only the layers that see everything are stretched to long contexts."""
        dim = config.head_dim
        return {
            "full_attention": rope_spec(dim, config.rope_theta, config.rope_scaling),
            "sliding_attention": rope_spec(dim, config.rope_local_base_freq),
        }

    @staticmethod
    def _scale(config: ModelConfig) -> float:
        return 1 / math.sqrt(config.query_pre_attn_scalar or config.head_dim)

    def __call__(self, batch: ForwardBatch, kv: Any) -> Tensor:
        """One forward pass -> logits [R, V] of the batch's logits rows."""
        self.ops.begin_step(batch, kv)
        x = self.ops.embedding(self.embed, batch, self.embed_scale)
        residual: Tensor | None = None
        for layer in self.layers:
            x, residual = layer(x, residual, batch, kv)
        x, _ = self.ops.add_rms_norm(x, residual, self.norm, self.eps)
        logits = self.ops.linear(self.ops.take(x, batch), self.head)
        return logits if self.softcap is None else self.ops.softcap(logits, self.softcap)
