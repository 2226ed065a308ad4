"""What models load from: a configuration, and tensors under their Hugging Face names.

Not here: reading a file (gguf), its names (names), and what is done with a tensor (loader).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np

from firstword.config import ModelConfig
from firstword.errors import CheckpointError, ConfigError
from firstword.quant import GGMLType, RawTensor
from firstword.weights.gguf import GGUFFile
from firstword.weights.gguf_values import MetadataValue
from firstword.weights.names import hf_config, hf_tensors


class TensorSource(Protocol):
    """What a Loader asks of a checkpoint."""

    @property
    def path(self) -> Path:
        """The file that messages name."""

    @property
    def config(self) -> ModelConfig:
        """What the model is."""

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""

    def tensor(self, name: str, shape: tuple[int, ...]) -> RawTensor | None:
        """The tensor of this name, or None; `shape` is what the model expects."""

    def names(self) -> Iterable[str]:
        """Every tensor that a model has to ask for."""


class Checkpoint:
    """An open model file.

    Args:
        file: the GGUF file.

    Raises:
        CheckpointError: the file contradicts itself.
        UnsupportedModelError: it asks for something that is not built.
    """

    def __init__(self, file: GGUFFile) -> None:
        self._file = file
        try:
            self._config = ModelConfig.from_hf(hf_config(file))
        except ConfigError as error:
            raise CheckpointError(file.path, "metadata", str(error)) from error
        self._tensors = MappingProxyType(hf_tensors(file))

    @property
    def path(self) -> Path:
        """The file; the first part of a split one."""
        return self._file.path

    @property
    def config(self) -> ModelConfig:
        """What the model is."""
        return self._config

    @property
    def tensors(self) -> Mapping[str, RawTensor]:
        """Tensors by Hugging Face name."""
        return self._tensors

    @property
    def num_bytes(self) -> int:
        """Bytes of the file, of all its parts."""
        return self._file.num_bytes

    @property
    def fingerprint(self) -> str:
        """What tells this model from others, wherever its file lies: 32 hexadecimal digits."""
        return self._file.fingerprint

    @property
    def identity(self) -> bytes:
        """What tells this state of the file from any other; see `GGUFFile.identity`."""
        return self._file.identity

    @cached_property
    def tokenizer_metadata(self) -> Mapping[str, MetadataValue]:
        """The `tokenizer.*` entries of the metadata."""
        entries = self._file.metadata.items()
        return MappingProxyType({k: v for k, v in entries if k.startswith("tokenizer.")})

    def forget_pages(self) -> None:
        """Give back the memory that reading the tensors took; see `GGUFFile.forget_pages`."""
        self._file.forget_pages()

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this Hugging Face name."""
        return name in self._tensors

    def tensor(self, name: str, shape: tuple[int, ...]) -> RawTensor | None:
        """The tensor of this Hugging Face name, whatever its shape, or None."""
        return self._tensors.get(name)

    def names(self) -> Iterable[str]:
        """The Hugging Face names of all tensors."""
        return self._tensors.keys()


_DTYPES = {"bfloat16": GGMLType.BF16, "float16": GGMLType.F16, "float32": GGMLType.F32}


class ShapeCheckpoint:
    """A checkpoint of shapes alone, to plan a model from its config.json.

    Every tensor that a model asks for is there, in `torch_dtype`, and takes no memory.

    Args:
        config: what the model is.
        path: the config.json, for messages.

    Raises:
        ConfigError: torch_dtype is not a floating-point type that is built.
    """

    def __init__(self, config: ModelConfig, path: str | os.PathLike[str] = "config.json") -> None:
        if config.torch_dtype not in _DTYPES:
            raise ConfigError(
                f"config torch_dtype is {config.torch_dtype!r}: expected one of "
                f"{', '.join(_DTYPES)}"
            )
        self.path = Path(path)
        self.config = config
        self._type = _DTYPES[config.torch_dtype]

    def has(self, name: str) -> bool:
        """Whether the model that the config describes has this optional tensor."""
        config = self.config
        if name == "lm_head.weight":
            return not config.tie_word_embeddings
        if name.endswith((".q_norm.weight", ".k_norm.weight")):
            return config.use_qk_norm
        if name.endswith((".q_proj.bias", ".k_proj.bias", ".v_proj.bias")):
            return config.attention_bias
        if name.endswith(".o_proj.bias"):
            return config.attention_bias and config.model_type != "qwen2"
        return not name.endswith(".bias") and name != "rope_freqs.weight"

    def tensor(self, name: str, shape: tuple[int, ...]) -> RawTensor | None:
        """A tensor of the shape asked for, whose bytes are one zero seen again and again."""
        if not self.has(name):
            return None
        tensor = RawTensor(name, shape, self._type, np.zeros(1, dtype=np.uint8))
        data = np.broadcast_to(tensor.data, (tensor.nbytes,))
        return RawTensor(name, shape, self._type, data)

    def names(self) -> Iterable[str]:
        """Nothing: a model may ask for what it likes."""
        return ()


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a GGUF file, or any part of a split one.

    Raises:
        CheckpointError: a file is missing, is something else, or is not what it says.
        UnsupportedModelError: the file asks for something that is not built.
    """
    return Checkpoint(GGUFFile.open(path))
