"""Which family computes which `model_type`, and how a checkpoint becomes a model."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from firstword.batch import ForwardBatch
from firstword.config import ModelConfig
from firstword.errors import UnsupportedModelError
from firstword.kvcache.spec import KVCacheSpec
from firstword.layers.attention import kv_cache_spec
from firstword.models.gemma3 import Gemma3
from firstword.models.llama import Llama
from firstword.ops.protocol import Ops, Weight
from firstword.weights.checkpoint import Checkpoint, ShapeCheckpoint
from firstword.weights.loader import Loader

TensorOut = TypeVar("TensorOut", covariant=True)
Tensor = TypeVar("Tensor")

_FAMILIES: dict[str, type[Llama[Any, Any]] | type[Gemma3[Any, Any]]] = {
    "llama": Llama,
    "mistral": Llama,
    "qwen2": Llama,
    "qwen3": Llama,
    "gemma3": Gemma3,
}
MODEL_TYPES = tuple(_FAMILIES)
"""The `model_type`s that can be run."""


class Model(Protocol[TensorOut]):
    """A network bound to a backend's weights."""

    def __call__(self, batch: ForwardBatch, kv: Any) -> TensorOut:
        """One forward pass -> logits [R, V]."""
        ...


def model_kv_spec(config: ModelConfig, kv_dtype: str = "float16") -> KVCacheSpec:
    """The KV groups that a model declares."""
    return kv_cache_spec(config, kv_dtype)


def build_model(
    checkpoint: Checkpoint | ShapeCheckpoint,
    ops: Ops[Tensor, Weight],
    kv: KVCacheSpec,
) -> Model[Tensor]:
    """Bind the weights of a checkpoint to a backend.

    Args:
        checkpoint: a model file, or only a config's shapes.
        ops: the backend that prepares the weights and computes.
        kv: the KV groups, from `model_kv_spec`.

    Raises:
        UnsupportedModelError: the model's family or a tensor's type is not built.
        CheckpointError: a tensor is missing, of another shape, or asked for by nobody.
    """
    config = checkpoint.config
    family = _FAMILIES.get(config.model_type)
    if family is None:
        raise UnsupportedModelError(
            checkpoint.path,
            "model_type",
            f"{config.model_type!r} is not built: only {', '.join(MODEL_TYPES)}",
        )
    load = Loader(checkpoint, ops.prepare)
    model: Model[Tensor] = family(config, ops, load, kv)
    load.finish()
    return model
