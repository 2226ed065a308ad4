"""Settings as values: what a model is (Hugging Face config keys) and how the engine is to run it.

Not here: where files are (weights) and what a request asks for (sampling.params).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal, get_args

from firstword.errors import ConfigError

BLOCK_SIZE = 32
"""Tokens in one KV block."""

LayerType = Literal["full_attention", "sliding_attention"]
KVDtype = Literal["float16", "bfloat16", "float32", "q8"]


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the context a model was trained on.

    Args:
        kind: "linear", "llama3", "yarn" or "default".
        factor: stretch of the context, >= 1.
        low_freq_factor: llama3: wavelengths above original/low are stretched whole.
        high_freq_factor: llama3: wavelengths below original/high are left alone.
        original_max_position_embeddings: context in training, in tokens.
        beta_fast: yarn: rotations above which a dimension is left alone.
        beta_slow: yarn: rotations below which a dimension is stretched whole.
        attention_factor: yarn: scale of cos and sin; None means 0.1 ln(factor) + 1.
    """

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None

    @classmethod
    def from_hf(cls, scaling: Mapping[str, Any] | None) -> RopeScaling:
        """Read the `rope_scaling` (or `rope_parameters`) entry of a Hugging Face config."""
        if not scaling:
            return cls()
        kind = str(scaling.get("rope_type", scaling.get("type", "default")))
        if kind not in ("default", "linear", "llama3", "yarn"):
            raise ConfigError(
                f"rope_scaling type {kind!r} is not built: only default, linear, llama3 and yarn"
            )
        known = {
            name: scaling[name]
            for name in cls.__dataclass_fields__
            if name != "kind" and scaling.get(name) is not None
        }
        for name, value in known.items():
            _check_real(f"rope_scaling {name}", value, 0)
        result = cls(kind, **known)
        if kind == "llama3" and not result.low_freq_factor < result.high_freq_factor:
            raise ConfigError(
                f"rope_scaling low_freq_factor {result.low_freq_factor} is not below "
                f"high_freq_factor {result.high_freq_factor}"
            )
        return result


@dataclass(frozen=True)
class ModelConfig:
    """What a model is, in the keys of its Hugging Face config.json.

    `rope_interleaved` is a fact of the checkpoint: GGUF files of the Llama family store the rows
    of q and k so that rotary pairs are neighbours (2i, 2i+1) instead of halves (i, i + d/2).
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling = field(default_factory=RopeScaling)
    rope_interleaved: bool = False
    hidden_act: str = "silu"
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    use_qk_norm: bool = False
    sliding_window: int | None = None
    layer_types: tuple[LayerType, ...] = ()
    rope_local_base_freq: float = 10000.0
    query_pre_attn_scalar: float | None = None
    final_logit_softcapping: float | None = None
    torch_dtype: str = "bfloat16"

    @classmethod
    def from_hf(cls, hf: Mapping[str, Any]) -> ModelConfig:
        """Build from the entries of a config.json, filling what such files may leave out.

        Raises:
            ConfigError: a required key is missing or a value is out of range.
        """
        text = hf.get("text_config") or hf
        if not isinstance(text, Mapping):
            raise ConfigError(f"text_config is {text!r}: expected an object")
        # Newer files say dtype, and models of several parts say it once for all.
        dtype = next((c[k] for c in (text, hf) for k in ("torch_dtype", "dtype") if c.get(k)), None)
        values = {
            name: text[name] for name in cls.__dataclass_fields__ if text.get(name) is not None
        }
        if dtype is not None:
            values["torch_dtype"] = dtype
        values["model_type"] = str(text.get("model_type", "")).removesuffix("_text")
        _fill_defaults(values, text)
        missing = [name for name in _REQUIRED if name not in values]
        if missing:
            raise ConfigError(f"config lacks {', '.join(missing)}: is it a decoder-only model?")
        config = cls(**values)
        config._check()
        return config

    def _check(self) -> None:
        for name in _POSITIVE:
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 < value < 2**31:
                raise ConfigError(f"config {name} is {value!r}: expected a whole number above 0")
        _check_real("config rms_norm_eps", self.rms_norm_eps, 0, or_equal=True)
        for name, above in _ABOVE.items():
            if getattr(self, name) is not None:
                _check_real(f"config {name}", getattr(self, name), above)
        if self.num_attention_heads % self.num_key_value_heads:
            raise ConfigError(
                f"config num_attention_heads {self.num_attention_heads} is not a multiple of "
                f"num_key_value_heads {self.num_key_value_heads}"
            )
        if self.head_dim % 2:
            raise ConfigError(f"config head_dim {self.head_dim} is odd: rotary pairs need two")
        if len(self.layer_types) != self.num_hidden_layers:
            raise ConfigError(
                f"config layer_types has {len(self.layer_types)} entries for "
                f"{self.num_hidden_layers} layers"
            )
        for layer_type in self.layer_types:
            if layer_type not in ("full_attention", "sliding_attention"):
                raise ConfigError(
                    f"config layer_types has {layer_type!r}, which is not built: only "
                    "full_attention and sliding_attention"
                )
        self._check_window()

    def _check_window(self) -> None:
        if "sliding_attention" not in self.layer_types:
            return
        if self.sliding_window is None:
            raise ConfigError("config has sliding_attention layers but no sliding_window")
        if not isinstance(self.sliding_window, int) or not 0 < self.sliding_window < 2**31:
            raise ConfigError(
                f"config sliding_window is {self.sliding_window!r}: expected a whole number above 0"
            )


_POSITIVE = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
)
_REQUIRED = (*_POSITIVE, "rms_norm_eps")
# What each number must be above; those that are None are not there.
_ABOVE = {
    "rope_theta": 1.0,
    "rope_local_base_freq": 1.0,
    "query_pre_attn_scalar": 0.0,
    "final_logit_softcapping": 0.0,
}


def _check_real(name: str, value: object, low: float, *, or_equal: bool = False) -> None:
    is_number = isinstance(value, int | float) and low <= value < inf
    if not is_number or (value == low and not or_equal):
        limit = f"of at least {low:g}" if or_equal else f"above {low:g}"
        raise ConfigError(f"{name} is {value!r}: expected a number {limit}")


def _fill_defaults(values: dict[str, Any], hf: Mapping[str, Any]) -> None:
    """Derive what config.json files leave out, by the rules of each family."""
    values.setdefault("num_key_value_heads", values.get("num_attention_heads"))
    if "head_dim" not in values and values.get("num_attention_heads"):
        values["head_dim"] = values.get("hidden_size", 0) // values["num_attention_heads"]
    if hf.get("hidden_activation"):
        values["hidden_act"] = hf["hidden_activation"]
    family = values["model_type"]
    if family == "gemma3":
        values.setdefault("tie_word_embeddings", True)
        values.setdefault("rope_theta", 1_000_000.0)
        values.setdefault("hidden_act", "gelu_pytorch_tanh")
    values["attention_bias"] = bool(values.get("attention_bias", family == "qwen2"))
    values["use_qk_norm"] = family in ("qwen3", "gemma3")
    rope = _rope_entries(hf)
    local_base = _local_rope_base(hf)
    if local_base is not None:
        values["rope_local_base_freq"] = local_base
    if "rope_theta" in rope:
        values["rope_theta"] = float(rope["rope_theta"])
    values["rope_scaling"] = RopeScaling.from_hf(rope)
    values["layer_types"] = _layer_types(values, hf)
    if "sliding_attention" not in values["layer_types"]:
        values["sliding_window"] = None  # some files give one and switch it off


def _rope_entries(hf: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rotary settings of the layers that see everything.

    Newer configs nest them by layer type; the sliding layers' base is then `rope_local_base_freq`
    of older ones and is read by `_local_rope_base`.
    """
    entries = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    if not isinstance(entries, Mapping):
        raise ConfigError(f"rope_scaling is {entries!r}: expected an object")
    nested = entries.get("full_attention", entries)
    return nested if isinstance(nested, Mapping) else {}


def _local_rope_base(hf: Mapping[str, Any]) -> float | None:
    entries = hf.get("rope_parameters")
    local = entries.get("sliding_attention") if isinstance(entries, Mapping) else None
    return (
        float(local["rope_theta"]) if isinstance(local, Mapping) and "rope_theta" in local else None
    )


def _layer_types(values: dict[str, Any], hf: Mapping[str, Any]) -> tuple[LayerType, ...]:
    layers = values.get("num_hidden_layers")
    if not isinstance(layers, int) or not 0 < layers <= 10_000:
        return ()
    if hf.get("layer_types"):
        return tuple(hf["layer_types"])
    if values["model_type"] == "gemma3":
        pattern = int(hf.get("sliding_window_pattern") or hf.get("_sliding_window_pattern") or 6)
        return tuple(
            "full_attention" if (i + 1) % pattern == 0 else "sliding_attention"
            for i in range(layers)
        )
    qwen = values["model_type"] in ("qwen2", "qwen3")
    sliding = bool(values.get("sliding_window")) and hf.get("use_sliding_window", not qwen)
    num_full = layers
    if sliding:  # Qwen: only behind the first few layers
        num_full = min(max(int(hf.get("max_window_layers") or 0), 0), layers) if qwen else 0
    return tuple("full_attention" if i < num_full else "sliding_attention" for i in range(layers))


_LEAST = {
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "max_queued_requests": 1,
    "max_queued_tokens": 1,
    "memory_bytes": 1,
    "kv_memory_bytes": 1,
    "kv_disk_bytes": 0,
    "num_top_logprobs": 0,
    "max_model_len": 2,
}
"""The least that each number may be; None, where it is allowed, leaves it to the engine."""


@dataclass(frozen=True)
class EngineConfig:
    """How the engine runs a model.

    Args:
        max_model_len: context in tokens, prompt and output together; None: the model's own.
        max_num_seqs: sequences in one step, >= 1.
        max_num_batched_tokens: positions in one step, >= 1: the token cap of a step.
        step_time_budget_ms: predicted milliseconds that one step may take; None: so much that
            running answers come at an even pace while prompts are read.
        max_queued_requests: sequences that may wait, >= 1; a named key has half of it at most.
            None: any number, for callers who wait for their own requests. A server gives one.
        max_queued_tokens: tokens that may wait to be computed, >= 1; likewise. None: with
            `max_queued_requests`, eight times what the KV pool holds; without it, any number.
        memory_bytes: bytes of the whole process: weights, KV pool, scratch and a reserve; None:
            sized from the machine.
        kv_memory_bytes: bytes of the KV pool; None: what is left of `memory_bytes`.
        kv_dtype: type of the stored keys and values; "q8" keeps them in 8 bits, half of float16,
            and changes answers a little.
        kv_disk_bytes: bytes of KV blocks kept on the disk, for all models together; 0 keeps none;
            None: FIRSTWORD_KV_DISK, else the smaller of 10 GB and a tenth of the free disk.
        enable_kv_cache: False recomputes every position at every step, to show what a cache saves.
        enable_prefix_caching: share and reuse blocks between requests.
        enable_panel_cache: keep prepared weights on the disk, for a faster start next time.
        seed: seed of requests that bring none; None: a fresh one per request, reported.
        num_top_logprobs: candidates recorded in the events of each sampled token.
        debug: check the invariants of the block bookkeeping after every step.
    """

    max_model_len: int | None = None
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    step_time_budget_ms: float | None = None
    max_queued_requests: int | None = None
    max_queued_tokens: int | None = None
    memory_bytes: int | None = None
    kv_memory_bytes: int | None = None
    kv_dtype: KVDtype = "float16"
    kv_disk_bytes: int | None = None
    enable_kv_cache: bool = True
    enable_prefix_caching: bool = True
    enable_panel_cache: bool = True
    seed: int | None = None
    num_top_logprobs: int = 0
    debug: bool = False

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}: it must be at least {least}")
        if self.kv_dtype not in get_args(KVDtype):
            raise ConfigError(
                f"kv_dtype is {self.kv_dtype!r}: it must be one of {', '.join(get_args(KVDtype))}"
            )
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise ConfigError(f"seed is {self.seed}: it must be from 0 to 2**64 - 1, or None")
        if self.step_time_budget_ms is not None and not self.step_time_budget_ms > 0:
            raise ConfigError(
                f"step_time_budget_ms is {self.step_time_budget_ms}: it must be above 0, or None"
            )


def parse_size(text: str, name: str) -> int:
    """Bytes written as a number with or without a unit: 800M, 2G, 1.5GiB, 2000000000.

    Units are powers of 1024.

    Args:
        text: the size.
        name: of what it is the size, for the error.

    Raises:
        ConfigError: it is no size.
    """
    match = re.fullmatch(
        r"(\d{1,18}(?:\.\d{1,9})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower(), re.ASCII
    )
    if match is None:
        raise ConfigError(f"{name} is {text!r}: write a size like 800M, 2G or 1.5GiB")
    number, unit = match.groups()
    factor: int = 1024 ** " kmgt".index(unit or " ")
    return round(float(number) * factor)
