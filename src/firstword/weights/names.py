"""GGUF names and metadata keys in the words of Hugging Face, as data tables.

The one place that knows how GGUF calls things; not here: reading the file (gguf).

Facts about the files that the tables rest on (from llama.cpp's convert_hf_to_gguf.py):
  - `llama`: the rows of q and k are permuted so that rotary pairs are neighbours; other
    architectures keep the halves of Hugging Face.
  - `gemma3`: norm weights hold 1 + w already; a norm multiplies by them as they are.
  - no `output.weight`: the output matrix is the embedding.
  - `rope_freqs.weight` (Llama 3.1 and later): divisors of the rotary frequencies,
    [head_dim / 2]; Hugging Face has them as the `llama3` scaling of its config instead.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from firstword.errors import CheckpointError, UnsupportedModelError
from firstword.quant import RawTensor
from firstword.weights.gguf import GGUFFile
from firstword.weights.gguf_values import MetadataValue, NumericArray, StringArray, shown


@dataclass(frozen=True)
class Architecture:
    """What a GGUF architecture means beyond its metadata.

    Args:
        layer_names: parts of a layer, GGUF to Hugging Face.
        hidden_act: activation of the gated MLP, which GGUF does not say.
        rope_interleaved: whether rotary pairs are neighbours in the rows of q and k.
    """

    layer_names: dict[str, str]
    hidden_act: str = "silu"
    rope_interleaved: bool = False


_COMMON = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_PRE_NORM = {**_COMMON, "ffn_norm": "post_attention_layernorm"}
_SANDWICH_NORM = {
    **_COMMON,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
ARCHITECTURES = {
    "llama": Architecture(_PRE_NORM, rope_interleaved=True),
    "qwen2": Architecture(_PRE_NORM),
    "qwen3": Architecture(_PRE_NORM),
    "gemma3": Architecture(_SANDWICH_NORM, hidden_act="gelu_pytorch_tanh"),
}
"""Architectures that are built, by `general.architecture`, which is Hugging Face's model_type."""

_WHOLE_MODEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_TENSOR = re.compile(r"blk\.(0|[1-9]\d{0,4})\.([a-z_]+)\.(weight|bias)")
_INV_FREQ = "self_attn.rotary_emb.inv_freq"

# Metadata key (after "ARCHITECTURE.") -> config key.
_WHOLE_NUMBERS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.sliding_window": "sliding_window",
}
_REAL_NUMBERS = {
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
    "rope.freq_base_swa": "rope_local_base_freq",
    "final_logit_softcapping": "final_logit_softcapping",
}
# Far wider than any model; beyond them float32 arithmetic overflows.
_REAL_RANGES = {
    "attention.layer_norm_rms_epsilon": (0.0, 1.0),
    "rope.freq_base": (1.0, 1e15),
    "rope.freq_base_swa": (1.0, 1e15),
    "final_logit_softcapping": (0.0, 1e6),
}
_REAL_RANGE = (0.0, 1e6)
_MAX_WHOLE = 2**31 - 1
# Keys that change the output in ways not built, unless they are absent or have this value.
_NOT_BUILT: dict[str, tuple[float, str]] = {
    "expert_count": (0, "a mixture of experts"),
    "attn_logit_softcapping": (0.0, "capped attention logits"),
    "rope.scaling.yarn_log_multiplier": (0.0, "this variant of YaRN"),
    "rope.scaling.yarn_ext_factor": (1.0, "this variant of YaRN"),
}
_GEMMA3_27B_LAYERS = 62


def architecture_of(file: GGUFFile) -> str:
    """The architecture a file names, which is one of ARCHITECTURES.

    Raises:
        CheckpointError: it names none.
        UnsupportedModelError: it names one that is not built.
    """
    name = file.metadata.get("general.architecture")
    where = "metadata 'general.architecture'"
    if not isinstance(name, str):
        found = "nothing" if name is None else f"{shown(name)}"
        raise CheckpointError(file.path, where, f"expected the name of one, found {found}")
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            file.path,
            where,
            f"is {shown(name)}, which is not built: only {', '.join(ARCHITECTURES)} are",
        )
    return name


def hf_tensor_name(architecture: str, name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name not in the tables is returned as it is.

    >>> hf_tensor_name("llama", "blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    match = _LAYER_TENSOR.fullmatch(name)
    if match is None:
        return _WHOLE_MODEL.get(name, name)
    layer, part, kind = match.groups()
    if part == "attn_rot_embd" and kind == "weight":
        return f"model.layers.{layer}.{_INV_FREQ}"
    hf_part = ARCHITECTURES[architecture].layer_names.get(part)
    return name if hf_part is None else f"model.layers.{layer}.{hf_part}.{kind}"


def hf_tensors(file: GGUFFile) -> dict[str, RawTensor]:
    """The tensors of a file under their Hugging Face names.

    Raises:
        CheckpointError: two tensors come to the same name.
    """
    architecture = architecture_of(file)
    tensors: dict[str, RawTensor] = {}
    for name, tensor in file.tensors.items():
        hf_name = hf_tensor_name(architecture, name)
        if hf_name in tensors:
            raise CheckpointError(
                file.path, f"tensor {shown(name)}", f"is a second {shown(hf_name)}"
            )
        tensors[hf_name] = replace(tensor, name=hf_name)
    return tensors


def hf_config(file: GGUFFile) -> dict[str, object]:
    """The metadata of a file as the entries of a config.json, for `ModelConfig.from_hf`.

    Raises:
        CheckpointError: a value has the wrong type or contradicts another.
        UnsupportedModelError: the file asks for an architecture or feature that is not built.
    """
    name = architecture_of(file)
    architecture = ARCHITECTURES[name]
    keys = _Keys(file, name)
    keys.refuse_not_built()
    config: dict[str, object] = {
        "model_type": name,
        "hidden_act": architecture.hidden_act,
        "rope_interleaved": architecture.rope_interleaved,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "vocab_size": _vocab_size(file),
    }
    for key, hf_key in _WHOLE_NUMBERS.items():
        config[hf_key] = keys.whole(key)
    for key, hf_key in _REAL_NUMBERS.items():
        config[hf_key] = keys.real(key)
    config["head_dim"] = _head_dim(keys, config)
    config["rope_scaling"] = _rope_scaling(keys)
    for hf_key in ("sliding_window", "final_logit_softcapping"):
        config[hf_key] = config[hf_key] or None  # 0 says that there is none
    if name == "gemma3":
        config.update(_gemma3(keys, config))
    return {key: value for key, value in config.items() if value is not None}


class _Keys:
    """The metadata of one architecture, with the types of its values checked."""

    def __init__(self, file: GGUFFile, architecture: str) -> None:
        self._file = file
        self._architecture = architecture

    def where(self, key: str) -> str:
        return f"metadata '{self._architecture}.{key}'"

    def error(self, key: str, problem: str) -> CheckpointError:
        return CheckpointError(self._file.path, self.where(key), problem)

    def unsupported(self, key: str, problem: str) -> UnsupportedModelError:
        return UnsupportedModelError(self._file.path, self.where(key), problem)

    def get(self, key: str) -> MetadataValue | None:
        """A value; an array that says the same for every layer is that one value."""
        value = self._file.metadata.get(f"{self._architecture}.{key}")
        if isinstance(value, NumericArray) and len(value):
            first, same = value[0], value.to_numpy()
            if not bool(np.all(same == same[0])):
                raise self.unsupported(key, "differs from layer to layer, which is not built")
            return first
        return value

    def raw(self, key: str) -> MetadataValue | None:
        return self._file.metadata.get(f"{self._architecture}.{key}")

    def whole(self, key: str) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_WHOLE:
            return value
        raise self.error(
            key, f"expected a whole number from 0 to {_MAX_WHOLE:,}, found {shown(value)}"
        )

    def real(self, key: str) -> float | None:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"expected a number, found {shown(value)}")
        low, high = _REAL_RANGES.get(key, _REAL_RANGE)
        if not low <= value <= high:
            raise self.error(key, f"expected a number from {low:g} to {high:g}, found {value!r}")
        # GGUF keeps single precision; config.json would say 1e-5, not 9.99999974737875e-06.
        return float(str(np.float32(value)))

    def refuse_not_built(self) -> None:
        for key, (harmless, what) in _NOT_BUILT.items():
            value = self.raw(key)
            if value is not None and value != harmless:
                raise self.unsupported(key, f"is {shown(value)}: {what} is not built")


def _vocab_size(file: GGUFFile) -> int | None:
    """Rows of the embedding: what logits are computed for; it may exceed the named tokens."""
    embedding = file.tensors.get("token_embd.weight")
    tokens = file.metadata.get("tokenizer.ggml.tokens")
    if embedding is None:
        return len(tokens) if isinstance(tokens, StringArray) else None
    rows = embedding.shape[0]
    if isinstance(tokens, StringArray) and len(tokens) > rows:
        raise CheckpointError(
            file.path,
            "metadata 'tokenizer.ggml.tokens'",
            f"holds {len(tokens):,} tokens, but tensor 'token_embd.weight' has {rows:,} rows",
        )
    return rows


def _head_dim(keys: _Keys, config: dict[str, object]) -> int | None:
    key_length, value_length = (
        keys.whole("attention.key_length"),
        keys.whole("attention.value_length"),
    )
    rotary = keys.whole("rope.dimension_count")
    if key_length is None:
        key_length = rotary
    if key_length is None:
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        if isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
            key_length = hidden // heads
    if key_length is None:
        return None
    if value_length not in (None, key_length):
        raise keys.unsupported(
            "attention.value_length",
            f"is {value_length}, but keys have {key_length}: different lengths are not built",
        )
    if rotary not in (None, key_length):
        raise keys.unsupported(
            "rope.dimension_count",
            f"is {rotary} of {key_length} in a head: rotating a part of a head is not built",
        )
    return key_length


def _rope_scaling(keys: _Keys) -> dict[str, object] | None:
    kind = keys.get("rope.scaling.type")
    if kind in (None, "none"):
        return None
    if kind not in ("linear", "yarn"):
        raise keys.unsupported(
            "rope.scaling.type", f"is {shown(kind)}: only none, linear and yarn are built"
        )
    factor = keys.real("rope.scaling.factor") or 1.0
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    original = keys.whole("rope.scaling.original_context_length") or keys.whole("context_length")
    scaling: dict[str, object] = {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        "beta_fast": keys.real("rope.scaling.yarn_beta_fast"),
        "beta_slow": keys.real("rope.scaling.yarn_beta_slow"),
        "attention_factor": _attention_factor(keys, factor),
    }
    return {key: value for key, value in scaling.items() if value is not None}


def _attention_factor(keys: _Keys, factor: float) -> float | None:
    """GGUF's factor multiplies the usual 0.1 ln(factor) + 1; Hugging Face's replaces it."""
    own = keys.real("rope.scaling.attn_factor")
    own = keys.real("rope.scaling.yarn_attn_factor") if own is None else own
    if own is None or own == 1.0:
        return None
    return own * (0.1 * math.log(max(factor, 1.0)) + 1.0)


def _gemma3(keys: _Keys, config: dict[str, object]) -> dict[str, object]:
    """What GGUF leaves unsaid about Gemma 3: every sixth layer is full, and how scores scale."""
    said: dict[str, object] = {}
    scalar = config["head_dim"]
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if config["num_hidden_layers"] == _GEMMA3_27B_LAYERS:
        # The 27B alone divides by the square root of hidden / heads, 168, and not of head_dim.
        if isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
            scalar = hidden // heads
    said["query_pre_attn_scalar"] = float(scalar) if isinstance(scalar, int) else None
    pattern = keys.raw("attention.sliding_window_pattern")
    if isinstance(pattern, NumericArray):
        if len(pattern) != config["num_hidden_layers"]:
            raise keys.error(
                "attention.sliding_window_pattern",
                f"has {len(pattern):,} entries for {config['num_hidden_layers']} layers",
            )
        kinds: dict[bool, str] = {True: "sliding_attention", False: "full_attention"}
        said["layer_types"] = tuple(kinds[bool(slides)] for slides in pattern)
    elif pattern is not None:
        every = keys.whole("attention.sliding_window_pattern")
        if every is None or every < 1:
            raise keys.error("attention.sliding_window_pattern", f"is {every}: expected 1 or more")
        said["sliding_window_pattern"] = every
    return said
