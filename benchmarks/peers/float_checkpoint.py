"""A GGUF file as a checkpoint of 16-bit floats, for engines that quantize such checkpoints.

The values are those that the file's blocks stand for. Not here: reading such checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firstword.quant.dequantize import dequantize
from firstword.quant.tensor import RawTensor
from firstword.weights.gguf import GGUFFile
from firstword.weights.names import hf_config, hf_tensors

Half = NDArray[np.float16]

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "gemma3": "Gemma3ForCausalLM"}
_CONFIG_TYPES = {"llama": "llama", "gemma3": "gemma3_text"}


def write_float_checkpoint(model: Path, folder: Path) -> None:
    """Write config.json and model.safetensors.

    Args:
        model: a GGUF file of the Llama or Gemma 3 family.
        folder: where to; made if it is not there.

    Raises:
        CheckpointError: it is no valid GGUF file.
        UnsupportedModelError, KeyError: its family is another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with GGUFFile.open(model) as file:
        config = hf_config(file)
        family = str(config["model_type"])
        tensors = {n: t for n, t in hf_tensors(file).items() if not n.endswith("inv_freq")}
        tokens = ("bos_token_id", "eos_token_id")
        ids = {name: file.metadata.get(f"tokenizer.ggml.{name}", 0) for name in tokens}
        written = {
            **{key: _plain(value) for key, value in config.items() if key != "rope_interleaved"},
            **ids,
            "architectures": [_ARCHITECTURES[family]],
            "model_type": _CONFIG_TYPES[family],
            "torch_dtype": "float16",
        }
        (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
        _write_safetensors(folder / "model.safetensors", tensors, config)


def _plain(value: object) -> object:
    """Whole numbers without a fraction, as checkpoints write them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _write_safetensors(
    path: Path, tensors: Mapping[str, RawTensor], config: Mapping[str, object]
) -> None:
    """The format: length of the header in 8 bytes, header as JSON, tensors without gaps."""
    header: dict[str, object] = {}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + 2 * tensor.num_values
        header[name] = {"dtype": "F16", "shape": tensor.shape, "data_offsets": (begin, end)}
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    with path.open("wb") as out:
        out.write(len(words).to_bytes(8, "little") + words)
        for values in _values(tensors, config):
            out.write(values.tobytes())


def _values(tensors: Mapping[str, RawTensor], config: Mapping[str, object]) -> Iterator[Half]:
    """Each tensor as the family's own checkpoints store it."""
    for name, tensor in tensors.items():
        values = dequantize(tensor)
        if config["rope_interleaved"] and name.endswith(("q_proj.weight", "k_proj.weight")):
            values = rotary_halves(values, int(str(config["head_dim"])))
        if config["model_type"] == "gemma3" and "norm" in name:
            values = values - 1  # its norms multiply by 1 + weight, which GGUF files hold summed
        yield values.astype(np.float16)


def rotary_halves(weight: NDArray[np.float32], head_dim: int) -> NDArray[np.float32]:
    """Rows of q or k with rotary pairs as halves of a head (i, i + d/2), not as neighbours.

    Args:
        weight: [heads * head_dim, D].
        head_dim: rows of a head, an even number.
    """
    heads = weight.reshape(-1, head_dim // 2, 2, weight.shape[1])  # [H, d/2, 2, D]
    return heads.swapaxes(1, 2).reshape(weight.shape)
