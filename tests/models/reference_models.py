"""Tiny random models for which transformers has said what the logits are.

Defined by a Hugging Face config and a seed: weights are drawn anew each time, by a generator whose
stream never changes (NumPy's RandomState) and by exact operations only, so that no model file is
kept. Only the logits are, in tests/golden/tiny_logits.npz (scripts/make_golden_tiny.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]

NUM_TOKENS = 80  # several windows, blocks and wavelengths
_SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,  # pairs 1 and 2 of 8 lie on the ramp
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 1024,  # pairs 2 to 4 of 8 lie on the ramp
}
_GEMMA3: dict[str, Any] = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 7,  # the sixth is full, the seventh slides again
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 16,
    "query_pre_attn_scalar": 16,
}


@dataclass(frozen=True)
class ReferenceModel:
    """A model without a file.

    Args:
        name: unique; its logits' name in the golden file.
        config: entries of a Hugging Face config.json, rope_parameters as transformers 5 has them.
        seed: of the weights and the tokens.
    """

    name: str
    config: dict[str, Any]
    seed: int

    @property
    def architecture(self) -> str:
        """What GGUF calls the family."""
        return str(self.config["model_type"]).removesuffix("_text")

    @property
    def token_ids(self) -> list[int]:
        """A prompt of NUM_TOKENS tokens."""
        random = np.random.RandomState(self.seed + 1000)
        ids: list[int] = (
            (random.random_sample(NUM_TOKENS) * self.config["vocab_size"]).astype(int).tolist()
        )
        return ids

    def weights(self) -> dict[str, Float32Array]:
        """Tensors by Hugging Face name; of Gemma's norms 1 + w, as GGUF has them."""
        random = np.random.RandomState(self.seed)
        return {name: _draw(random, name, shape) for name, shape in self._shapes()}

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        c = self.config
        hidden, inner, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
        q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
        yield "model.embed_tokens.weight", (c["vocab_size"], hidden)
        if not c["tie_word_embeddings"]:
            yield "lm_head.weight", (c["vocab_size"], hidden)
        yield "model.norm.weight", (hidden,)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if self.architecture == "gemma3":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for i in range(c["num_hidden_layers"]):
            layer = f"model.layers.{i}"
            for norm in norms:
                yield f"{layer}.{norm}.weight", (hidden,)
            for name, rows in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
                yield f"{layer}.self_attn.{name}.weight", (rows, hidden)
                if self.architecture == "qwen2":
                    yield f"{layer}.self_attn.{name}.bias", (rows,)
            yield f"{layer}.self_attn.o_proj.weight", (hidden, q)
            if self.architecture in ("qwen3", "gemma3"):
                yield f"{layer}.self_attn.q_norm.weight", (head,)
                yield f"{layer}.self_attn.k_norm.weight", (head,)
            yield f"{layer}.mlp.gate_proj.weight", (inner, hidden)
            yield f"{layer}.mlp.up_proj.weight", (inner, hidden)
            yield f"{layer}.mlp.down_proj.weight", (hidden, inner)

    def write_gguf(self, path: Path) -> Path:
        """Write it as llama.cpp's converter would: its names, its order of rows, F32."""
        writer = gguf.GGUFWriter(path, self.architecture)
        _write_metadata(writer, self)
        for name, tensor in self.weights().items():
            if self.architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
                tensor = _neighbouring_pairs(tensor, self.config["head_dim"])
            writer.add_tensor(_gguf_name(self.architecture, name), tensor)
        if self.config["rope_parameters"].get("rope_type") == "llama3":
            writer.add_tensor("rope_freqs.weight", rope_freqs(self.config))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _draw(random: np.random.RandomState, name: str, shape: tuple[int, ...]) -> Float32Array:
    """Uniform numbers, large enough for attention to be far from even."""
    centred = random.random_sample(shape) * 2 - 1
    if "norm" in name:
        return (1 + centred / 2).astype(np.float32)
    if len(shape) == 1 or "embed_tokens" in name:
        return centred.astype(np.float32)
    gain = 3.0 if ".q_proj." in name or ".k_proj." in name else 2.0
    return (centred * (gain / math.sqrt(shape[1]))).astype(np.float32)


def _write_metadata(writer: gguf.GGUFWriter, model: ReferenceModel) -> None:
    c = model.config
    writer.add_name(model.name)
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_key_length(c["head_dim"])
    writer.add_value_length(c["head_dim"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    if c.get("sliding_window"):
        writer.add_sliding_window(c["sliding_window"])
    rope = c["rope_parameters"]
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    tokens = ["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, c["vocab_size"]))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([2, 3, 3] + [1] * (len(tokens) - 3))


def _neighbouring_pairs(tensor: Float32Array, head_dim: int) -> Float32Array:
    """Rows (head, half, pair) to (head, pair, half), of a matrix or a bias."""
    heads = tensor.reshape(-1, 2, head_dim // 2, *tensor.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2).reshape(tensor.shape))


def rope_freqs(config: dict[str, Any]) -> Float32Array:
    """Divisors of the frequencies, as the converter derives them from the llama3 scaling."""
    rope, dim = config["rope_parameters"], config["head_dim"]
    original, factor = rope["original_max_position_embeddings"], rope["factor"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    divisors = []
    for i in range(0, dim, 2):
        wavelength = 2 * math.pi * rope["rope_theta"] ** (i / dim)
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, np.float32)


_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def _gguf_name(architecture: str, name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    if architecture == "gemma3":
        after = {
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
    else:
        after = {"post_attention_layernorm": "ffn_norm"}
    return f"blk.{layer}.{(_PARTS | after)[part]}.{kind}"


def _family(model_type: str, rope: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**_SHAPE, "model_type": model_type, "rope_parameters": rope, **changes}


def _gemma3_rope(full: dict[str, Any]) -> dict[str, Any]:
    return {"full_attention": {"rope_theta": 1e6, **full}, "sliding_attention": _ROPE}


MODELS = {
    model.name: model
    for model in (
        ReferenceModel("llama", _family("llama", _ROPE), seed=1),
        ReferenceModel("llama-llama3", _family("llama", _LLAMA3), seed=2),
        ReferenceModel(
            "llama-linear",
            _family("llama", {**_ROPE, "rope_type": "linear", "factor": 4.0}),
            seed=3,
        ),
        ReferenceModel("qwen2-yarn", _family("qwen2", _YARN, max_position_embeddings=4096), seed=4),
        ReferenceModel("qwen3", _family("qwen3", _ROPE, tie_word_embeddings=True), seed=5),
        ReferenceModel(
            "gemma3",
            {**_SHAPE, **_GEMMA3, "rope_parameters": _gemma3_rope({"rope_type": "default"})},
            seed=6,
        ),
        ReferenceModel(
            "gemma3-linear",
            {
                **_SHAPE,
                **_GEMMA3,
                "rope_parameters": _gemma3_rope(
                    {"rope_type": "linear", "rope_theta": 1e4, "factor": 8.0}
                ),
            },
            seed=7,
        ),
    )
}
