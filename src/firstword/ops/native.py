"""The compiled backend: weights in panels, and models recorded once to be run as plans.

`NativeOps` records what a model computes (record); `compile_model` plans it (passes) and hands the
plan to the compiled module (native_plan). Not here: the arithmetic, which csrc/kernels defines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import firstword._native as _native
from firstword.batch import ForwardBatch
from firstword.errors import ConfigError, UnsupportedModelError
from firstword.kvcache.spec import KVCacheSpec
from firstword.ops.native_kv import NativeKVPool
from firstword.ops.protocol import AttentionSpec, RopeSpec, WeightRole
from firstword.ops.record import Recorder, Recording, Symbol
from firstword.ops.weight_types import check_built
from firstword.quant import DEQUANTIZABLE, GGMLType, RawTensor, dequantize

_HEAD_DIM_MULTIPLE = 16

PANEL_LAYOUT_VERSION = _native.PANEL_LAYOUT_VERSION
"""Counts the changes of what panels look like."""


@dataclass(frozen=True, eq=False)
class NativeWeight:
    """A weight held by the compiled module.

    Args:
        shape: [O, D] of a matrix, [O] of a vector.
        type: of the file's tensor; a vector is float32 whatever it was.
        index: among the matrices, or among the vectors.
    """

    shape: tuple[int, ...]
    type: GGMLType
    index: int


class PanelStore(Protocol):
    """Where panels are kept, so that a later start needs not make them."""

    def blank(self, name: str) -> NDArray[np.uint8] | None:
        """Where to write the panels of this tensor; None when they are there or not kept."""

    def panels(self, name: str) -> NDArray[np.uint8] | None:
        """The panels of this tensor, aligned to 64 bytes; None when they are not kept."""


def activation_run(weight: NativeWeight) -> int:
    """The run length in which a matrix wants its input quantized: 32, 256, or 0 for not at all."""
    return weight.type.block_size if weight.type.block_size > 1 else 0


def built_isas() -> list[str]:
    """The instruction sets that this installation has kernels for, best first."""
    return _native.built_isas()


def panel_sizes(tensors: Iterable[RawTensor]) -> list[tuple[str, int]]:
    """The names of the matrices among `tensors`, with the bytes of their panels."""
    return [
        (t.name, _native.panel_bytes(int(t.type), *t.shape))
        for t in tensors
        if len(t.shape) == 2 and t.type in DEQUANTIZABLE
    ]


def usable_isas() -> list[str]:
    """The instruction sets that are built and run on this processor, best first."""
    return _native.usable_isas()


class NativeOps:
    """Operations that record themselves, and weights ready to be multiplied.

    Args:
        num_threads: threads to compute with, the caller's included.
        isa: instruction set to compute with; "" for the best one, or the one that the environment
            variable FIRSTWORD_ISA names. All give the same bits.
        panels: where panels are kept; None makes them in memory.

    Raises:
        ConfigError: the instruction set is not built or does not run here.
    """

    def __init__(
        self, num_threads: int = 1, isa: str = "", panels: PanelStore | None = None
    ) -> None:
        try:
            self.backend = _native.Backend(num_threads, isa)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        self.weights = _native.Weights()
        self._panels = panels
        self._recorder: Recorder[NativeWeight] = Recorder()

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return self.backend.isa

    @property
    def num_threads(self) -> int:
        """Threads in use, the caller's included."""
        return self.backend.num_threads

    def prepare(self, role: WeightRole, tensors: Sequence[RawTensor]) -> NativeWeight:
        """Repack a matrix into panels, on all threads; a vector becomes float32.

        Raises:
            UnsupportedModelError: the tensor's type is not built.
        """
        tensor = _stacked(tensors)
        check_built(tensor)
        if role == "vector":
            values = np.ascontiguousarray(dequantize(tensor).reshape(-1))
            return NativeWeight(tensor.shape, GGMLType.F32, self.weights.add_vector(values))
        index = self._kept_matrix(tensor) if len(tensors) == 1 else None
        if index is None:
            n, k = tensor.shape
            data = np.ascontiguousarray(tensor.data)
            index = self.weights.add_matrix(self.backend, int(tensor.type), n, k, data)
        return NativeWeight(tensor.shape, tensor.type, index)

    def _kept_matrix(self, tensor: RawTensor) -> int | None:
        """The index of a matrix whose panels are kept, written first when they are not yet."""
        if self._panels is None:
            return None
        n, k = tensor.shape
        blank = self._panels.blank(tensor.name)
        if blank is not None:
            data = np.ascontiguousarray(tensor.data)
            _native.repack(self.backend, int(tensor.type), n, k, data, blank)
        panels = self._panels.panels(tensor.name)
        return None if panels is None else self.weights.add_panels(int(tensor.type), n, k, panels)

    def record(
        self, model: Callable[[ForwardBatch, Any], Symbol], batch: ForwardBatch
    ) -> Recording[NativeWeight]:
        """What a model computes; the numbers in `batch` do not matter."""
        result = model(batch, None)
        return self._recorder.finish(result)

    def begin_step(self, batch: ForwardBatch, kv: Any) -> None:
        """Begin a recording; a step's block copies are run by the plan."""
        self._recorder = Recorder()

    def embedding(self, weight: NativeWeight, batch: ForwardBatch, scale: float = 1.0) -> Symbol:
        """Record rows of `weight` [V, D] for the batch's token ids, times `scale` -> [T, D]."""
        return self._recorder.embedding(weight, weight.shape[1], scale)

    def linear(self, x: Symbol, weight: NativeWeight, bias: NativeWeight | None = None) -> Symbol:
        """Record x [T, D] times the transpose of weight [O, D], plus bias [O] -> [T, O]."""
        return self._recorder.linear(x, weight, bias, weight.shape[0])

    def rms_norm(self, x: Symbol, weight: NativeWeight, eps: float) -> Symbol:
        """Record a norm over each run of len(weight) values."""
        return self._recorder.norm(x, weight, eps)

    def add_rms_norm(
        self, x: Symbol, residual: Symbol | None, weight: NativeWeight, eps: float
    ) -> tuple[Symbol, Symbol]:
        """Record (rms_norm(x + residual), x + residual); a residual of None is zero."""
        total = x if residual is None else self._recorder.add(x, residual)
        return self._recorder.norm(total, weight, eps), total

    def rope(self, x: Symbol, batch: ForwardBatch, spec: RopeSpec) -> Symbol:
        """Record the rotation of every head of x [T, H d] by the row's position."""
        return self._recorder.rope(x, spec)

    def store_kv(
        self, k: Symbol, v: Symbol, batch: ForwardBatch, kv: Any, spec: AttentionSpec
    ) -> None:
        """Record that k and v [T, K d] are stored at the batch's slots of the layer's group."""
        self._recorder.store_kv(k, v, spec)

    def paged_attention(
        self, q: Symbol, batch: ForwardBatch, kv: Any, spec: AttentionSpec
    ) -> Symbol:
        """Record causal attention of q [T, H d] over the stored positions of its sequence.

        Raises:
            UnsupportedModelError: the heads' size, or attention sinks, have no compiled kernel.
        """
        if spec.head_dim % _HEAD_DIM_MULTIPLE:
            raise _no_kernel(f"head_dim {spec.head_dim} is no multiple of {_HEAD_DIM_MULTIPLE}")
        if spec.sinks is not None:
            raise _no_kernel("attention sinks are asked for")
        return self._recorder.attention(q, spec)

    def silu_mul(self, gate: Symbol, up: Symbol) -> Symbol:
        """Record silu(gate) x up."""
        return self._recorder.activate("silu", gate, up)

    def gelu_mul(self, gate: Symbol, up: Symbol) -> Symbol:
        """Record gelu(gate) x up, with the tanh form of gelu."""
        return self._recorder.activate("gelu", gate, up)

    def softcap(self, x: Symbol, cap: float) -> Symbol:
        """Record cap x tanh(x / cap)."""
        return self._recorder.softcap(x, cap)

    def take(self, x: Symbol, batch: ForwardBatch) -> Symbol:
        """Record that only the logits rows of x [T, D] are wanted -> [R, D]."""
        return self._recorder.take(x, batch)

    def new_kv_pool(self, spec: KVCacheSpec, num_blocks: int) -> NativeKVPool:
        """Storage for `num_blocks` blocks of the groups of `spec`."""
        return NativeKVPool(spec, num_blocks)

    def read_block(self, kv: NativeKVPool, block: int) -> bytes:
        """The whole content of a block, as `write_block` takes it."""
        return kv.read_block(block)

    def write_block(self, kv: NativeKVPool, block: int, content: bytes) -> None:
        """Set the whole content of a block.

        Raises:
            ConfigError: the content has another length than a page of this pool.
        """
        kv.write_block(block, content)


def _stacked(tensors: Sequence[RawTensor]) -> RawTensor:
    """Tensors of one type as one, stacked along outputs."""
    first = tensors[0]
    if len(tensors) == 1:
        return first
    if any((t.type, t.shape[1:]) != (first.type, first.shape[1:]) for t in tensors):
        raise _no_kernel("tensors of several types or sizes are stacked")
    outputs = sum(t.shape[0] for t in tensors)
    data = np.concatenate([t.data for t in tensors])
    return RawTensor(first.name, (outputs, *first.shape[1:]), first.type, data)


def _no_kernel(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        "model", "attention", f'{what}: the compiled backend has none; choose numerics="blas"'
    )
