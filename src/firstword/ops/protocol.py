"""The arithmetic that models are written against: about fifteen operations, many backends.

A model sees opaque tensors and weights only; dtype, quantization, device and block bookkeeping
live behind this boundary. Shapes: T positions, D hidden size, H query heads, K kv heads, d head
size, O outputs, R logits rows, V vocabulary. Activations stay two-dimensional: heads are
neighbouring runs of d values within a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from firstword.batch import ForwardBatch
from firstword.kvcache.spec import KVCacheSpec
from firstword.quant import RawTensor

WeightRole = Literal["linear", "embedding", "vector"]
Tensor = TypeVar("Tensor")
Weight = TypeVar("Weight")


@dataclass(frozen=True)
class RopeSpec:
    """Rotary position embedding (Su et al., 2021, arXiv 2104.09864), fixed at load.

    Args:
        inv_freq: d / 2 angles per position, in radians; a scaling is already applied.
        interleaved: pairs are neighbours (2i, 2i + 1) instead of halves (i, i + d / 2).
        attention_factor: scale of cos and sin (YaRN); 1 otherwise.
    """

    inv_freq: tuple[float, ...]
    interleaved: bool = False
    attention_factor: float = 1.0

    @property
    def head_dim(self) -> int:
        """d, the values of one head."""
        return 2 * len(self.inv_freq)


@dataclass(frozen=True)
class AttentionSpec:
    """One layer's attention over pages of the KV pool.

    Args:
        layer: index of the layer, which names its KV group.
        group: index of the layer's KV group.
        index_in_group: place of the layer within its group's pages.
        num_heads: H query heads.
        num_kv_heads: K key/value heads; H / K query heads share one.
        head_dim: d.
        scale: factor of q . k.
        window: positions a query sees, itself included; None for all before it.
        softcap: scores become softcap x tanh(score / softcap); None for none.
        sinks: learned logits, one per head, that take part in the softmax and add nothing.
    """

    layer: int
    group: int
    index_in_group: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: tuple[float, ...] | None = None


class KVPool(Protocol):
    """Opaque storage of all blocks; only the backend that made it looks inside."""

    @property
    def spec(self) -> KVCacheSpec:
        """The groups it was made for."""
        ...

    @property
    def num_blocks(self) -> int:
        """Blocks it holds."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes it takes when every block is in use."""
        ...


class PagedKVPool(KVPool, Protocol):
    """A pool that has bytes, which can be kept elsewhere and brought back."""

    def read_block(self, block: int) -> bytes:
        """The whole content of a block: `spec.page_bytes` bytes."""
        ...

    def write_block(self, block: int, content: bytes) -> None:
        """Set the whole content of a block."""
        ...


class Ops(Protocol, Generic[Tensor, Weight]):
    """One backend. Results of every method are new tensors; arguments are left alone."""

    def prepare(self, role: WeightRole, tensors: Sequence[RawTensor]) -> Weight:
        """Turn tensors of a file, stacked along outputs when several, into a weight.

        Raises:
            UnsupportedModelError: the tensor's type is not built.
        """
        ...

    def begin_step(self, batch: ForwardBatch, kv: Any) -> None:
        """Precede a step: resolve what all layers share and run the batch's block copies."""
        ...

    def embedding(self, weight: Weight, batch: ForwardBatch, scale: float = 1.0) -> Tensor:
        """Rows of `weight` [V, D] for the batch's token ids, times `scale` -> [T, D]."""
        ...

    def linear(self, x: Tensor, weight: Weight, bias: Weight | None = None) -> Tensor:
        """x [T, D] times the transpose of weight [O, D], plus bias [O] -> [T, O]."""
        ...

    def rms_norm(self, x: Tensor, weight: Weight, eps: float) -> Tensor:
        """Root-mean-square norm (Zhang and Sennrich, 2019, arXiv 1910.07467) over each run of
        len(weight) values: whole rows [T, D], or every head of a row."""
        ...

    def add_rms_norm(
        self, x: Tensor, residual: Tensor | None, weight: Weight, eps: float
    ) -> tuple[Tensor, Tensor]:
        """(rms_norm(x + residual), x + residual); a residual of None is zero."""
        ...

    def rope(self, x: Tensor, batch: ForwardBatch, spec: RopeSpec) -> Tensor:
        """Rotate every head of x [T, H d] by the row's position -> [T, H d]."""
        ...

    def store_kv(
        self, k: Tensor, v: Tensor, batch: ForwardBatch, kv: Any, spec: AttentionSpec
    ) -> None:
        """Store k and v [T, K d] at the batch's slots of the layer's group."""
        ...

    def paged_attention(
        self, q: Tensor, batch: ForwardBatch, kv: Any, spec: AttentionSpec
    ) -> Tensor:
        """Causal attention of q [T, H d] over all stored positions of its sequence -> [T, H d]."""
        ...

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        """silu(gate) x up -> [T, I]."""
        ...

    def gelu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        """gelu(gate) x up, with the tanh form of gelu -> [T, I]."""
        ...

    def softcap(self, x: Tensor, cap: float) -> Tensor:
        """cap x tanh(x / cap)."""
        ...

    def take(self, x: Tensor, batch: ForwardBatch) -> Tensor:
        """The batch's logits rows of x [T, D] -> [R, D]."""
        ...

    def new_kv_pool(self, spec: KVCacheSpec, num_blocks: int) -> KVPool:
        """Storage for `num_blocks` blocks of the groups of `spec`."""
        ...

    def read_block(self, kv: Any, block: int) -> bytes:
        """The whole content of a block, as `write_block` takes it."""
        ...

    def write_block(self, kv: Any, block: int, content: bytes) -> None:
        """Set the whole content of a block."""
        ...
