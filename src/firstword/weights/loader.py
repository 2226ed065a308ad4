"""Hands the tensors of a checkpoint to a model's constructor: building a model is loading it.

Not here: what a backend makes of a tensor; that is the `prepare` it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeVar

from firstword.errors import CheckpointError, UnsupportedModelError
from firstword.quant import DEQUANTIZABLE, RawTensor
from firstword.weights.checkpoint import TensorSource

W = TypeVar("W")
MatrixRole = Literal["linear", "embedding"]

# Tensors that old converters wrote and that follow from the config.
_IGNORED_SUFFIXES = ("rotary_emb.inv_freq",)


class Loader(Generic[W]):
    """Finds tensors by name, checks their shapes, and keeps account of them.

    Args:
        checkpoint: where the tensors are.
        prepare: makes a backend's opaque weight from a role ("linear", "embedding", "vector") and
            the raw tensors; more than one only where a backend fuses them.
    """

    def __init__(
        self, checkpoint: TensorSource, prepare: Callable[[str, Sequence[RawTensor]], W]
    ) -> None:
        self._checkpoint = checkpoint
        self._prepare = prepare
        self._prefix = ""
        self._asked: set[str] = set()

    def at(self, prefix: str) -> Loader[W]:
        """A loader whose names begin with `prefix` and a dot; it shares this one's account."""
        scoped = Loader(self._checkpoint, self._prepare)
        scoped._prefix = f"{self._prefix}{prefix}."
        scoped._asked = self._asked
        return scoped

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return self._checkpoint.has(self._prefix + name)

    def matrix(
        self, name: str, out_features: int, in_features: int, role: MatrixRole = "linear"
    ) -> W:
        """The weight of a matrix [out_features, in_features].

        Raises:
            CheckpointError: it is missing or has another shape.
            UnsupportedModelError: it is of a type that is not built.
        """
        return self._required(role, name, (out_features, in_features))

    def vector(self, name: str, size: int) -> W:
        """The weight of a vector [size]; raises as `matrix` does."""
        return self._required("vector", name, (size,))

    def optional_matrix(
        self, name: str, out_features: int, in_features: int, role: MatrixRole = "linear"
    ) -> W | None:
        """The weight of a matrix, or None where there is none; raises as `matrix` does."""
        return self._optional(role, name, (out_features, in_features))

    def optional_vector(self, name: str, size: int) -> W | None:
        """The weight of a vector, or None where there is none; raises as `matrix` does."""
        return self._optional("vector", name, (size,))

    def finish(self) -> None:
        """Check that the model asked for every tensor of the checkpoint.

        Raises:
            CheckpointError: some were left: the model computes something else than was trained.
        """
        left = [
            name
            for name in self._checkpoint.names()
            if name not in self._asked and not name.endswith(_IGNORED_SUFFIXES)
        ]
        if left:
            shown = ", ".join(repr(name) for name in left[:5]) + (", ..." if left[5:] else "")
            raise CheckpointError(
                self._checkpoint.path,
                f"tensor {left[0]!r}",
                f"the {self._checkpoint.config.model_type} model has no use for {len(left)} of "
                f"the tensors: {shown}",
            )

    def _required(self, role: str, name: str, shape: tuple[int, ...]) -> W:
        weight = self._optional(role, name, shape)
        if weight is None:
            raise CheckpointError(
                self._checkpoint.path,
                f"tensor {self._prefix + name!r}",
                f"is missing: expected one of shape {_shape_text(shape)}",
            )
        return weight

    def _optional(self, role: str, name: str, shape: tuple[int, ...]) -> W | None:
        full_name = self._prefix + name
        tensor = self._checkpoint.tensor(full_name, shape)
        if tensor is None:
            return None
        where = f"tensor {full_name!r}"
        if tensor.shape != shape:
            raise CheckpointError(
                self._checkpoint.path,
                where,
                f"expected shape {_shape_text(shape)} by the metadata, "
                f"found {_shape_text(tensor.shape)}",
            )
        if tensor.type not in DEQUANTIZABLE:
            built = ", ".join(t.name for t in sorted(DEQUANTIZABLE))
            raise UnsupportedModelError(
                self._checkpoint.path,
                where,
                f"is of type {tensor.type.name}, which is not built: choose a file whose types "
                f"are among {built}",
            )
        self._asked.add(full_name)
        return self._prepare(role, [tensor])


def _shape_text(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(f"{size:,}" for size in shape) + "]"
