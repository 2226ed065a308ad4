"""The Llama family: Llama, Mistral, Qwen2, Qwen3 (they differ by q/k/v biases and q/k norms).

Llama: Touvron et al., 2023 (arXiv 2302.13971); grouped-query attention: Ainslie et al., 2023
(arXiv 2305.13245).
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
    """Norm, attention, norm, feed-forward; each half adds to the residual stream."""

    def __init__(
        self,
        config: ModelConfig,
        ops: Ops[Tensor, Weight],
        load: Loader[Weight],
        attention: AttentionShape,
    ) -> None:
        self.ops, self.eps = ops, config.rms_norm_eps
        self.attention = Attention(ops, load.at("self_attn"), attention)
        self.mlp = GatedMLP(ops, load.at("mlp"), config)
        self.attention_norm = load.vector("input_layernorm.weight", config.hidden_size)
        self.mlp_norm = load.vector("post_attention_layernorm.weight", config.hidden_size)

    def __call__(
        self, x: Tensor, residual: Tensor | None, batch: ForwardBatch, kv: Any
    ) -> tuple[Tensor, Tensor]:
        """What the layer adds to the stream [T, D], and the stream before it [T, D]."""
        x, residual = self.ops.add_rms_norm(x, residual, self.attention_norm, self.eps)
        x = self.attention(x, batch, kv)
        x, residual = self.ops.add_rms_norm(x, residual, self.mlp_norm, self.eps)
        return self.mlp(x), residual


class Llama(Generic[Tensor, Weight]):
    """A whole network: token ids in, logits of the wanted rows out."""

    def __init__(
        self,
        config: ModelConfig,
        ops: Ops[Tensor, Weight],
        load: Loader[Weight],
        kv: KVCacheSpec,
    ) -> None:
        self.ops, self.eps = ops, config.rms_norm_eps
        rope = self._rope(config, load)
        self.embed = load.matrix(
            "model.embed_tokens.weight", config.vocab_size, config.hidden_size, role="embedding"
        )
        self.layers = [
            DecoderLayer(
                config,
                ops,
                load.at(f"model.layers.{i}"),
                AttentionShape(
                    spec=attention_spec(config, kv, i, scale=1 / math.sqrt(config.head_dim)),
                    rope=rope,
                    hidden_size=config.hidden_size,
                    bias=config.attention_bias,
                    qk_norm_eps=config.rms_norm_eps if config.use_qk_norm else None,
                ),
            )
            for i in range(config.num_hidden_layers)
        ]
        self.norm = load.vector("model.norm.weight", config.hidden_size)
        head = load.optional_matrix("lm_head.weight", config.vocab_size, config.hidden_size)
        self.head = self.embed if head is None else head

    @staticmethod
    def _rope(config: ModelConfig, load: Loader[Weight]) -> RopeSpec:
        return rope_spec(
            config.head_dim,
            config.rope_theta,
            config.rope_scaling,
            interleaved=config.rope_interleaved,
            freq_factors=load.optional_values("rope_freqs.weight", config.head_dim // 2),
        )

    def __call__(self, batch: ForwardBatch, kv: Any) -> Tensor:
        """One forward pass -> logits [R, V] of the batch's logits rows."""
        self.ops.begin_step(batch, kv)
        x = self.ops.embedding(self.embed, batch)
        residual: Tensor | None = None
        for layer in self.layers:
            x, residual = layer(x, residual, batch, kv)
        x, _ = self.ops.add_rms_norm(x, residual, self.norm, self.eps)
        return self.ops.linear(self.ops.take(x, batch), self.head)
