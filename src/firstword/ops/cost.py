"""The `Ops` protocol with shapes for tensors: a model run over it says what a step costs.

Not here: how long that takes on a machine (plan) and any value of a tensor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from firstword.batch import PADDED_SLOT, ForwardBatch
from firstword.errors import UnsupportedModelError
from firstword.kvcache.spec import KVCacheSpec
from firstword.ops.protocol import AttentionSpec, RopeSpec, WeightRole
from firstword.ops.weight_types import memory_bytes
from firstword.quant import RawTensor

CostKind = Literal["linear", "attention", "norm", "other"]
ACTIVATION_BYTES = 4
"""Activations are float32."""

# Operations per value; exp, tanh and square root count as one.
_NORM_FLOPS = 4  # square, add, scale, weight
_ROPE_FLOPS = 3  # two products and a sum
_SILU_MUL_FLOPS = 5  # negate, exp, add, divide, multiply
_GELU_MUL_FLOPS = 9  # cube, two scaled sums, tanh, add, halve, two products
_SOFTCAP_FLOPS = 3  # divide, tanh, multiply


@dataclass(slots=True)
class Cost:
    """What some operations take: a sum that operations are added to.

    Args:
        flops: floating-point operations; a multiply-add is two.
        weight_bytes: weights read, as the compiled kernels keep them.
        kv_bytes_read: keys and values read, once for all query heads that share them.
        kv_bytes_written: keys and values written.
        activation_bytes_read: float32 inputs read.
        activation_bytes_written: float32 outputs written.
        attended: dot products q . k of one head, summed over layers.
    """

    flops: int = 0
    weight_bytes: int = 0
    kv_bytes_read: int = 0
    kv_bytes_written: int = 0
    activation_bytes_read: int = 0
    activation_bytes_written: int = 0
    attended: int = 0

    @property
    def bytes_read(self) -> int:
        """Weights, keys, values and activations read."""
        return self.weight_bytes + self.kv_bytes_read + self.activation_bytes_read

    @property
    def bytes_written(self) -> int:
        """Keys, values and activations written."""
        return self.kv_bytes_written + self.activation_bytes_written

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.weight_bytes + other.weight_bytes,
            self.kv_bytes_read + other.kv_bytes_read,
            self.kv_bytes_written + other.kv_bytes_written,
            self.activation_bytes_read + other.activation_bytes_read,
            self.activation_bytes_written + other.activation_bytes_written,
            self.attended + other.attended,
        )


@dataclass(frozen=True)
class StepCost:
    """The cost of one step: in total and by kind of operation."""

    by_kind: Mapping[CostKind, Cost]

    @property
    def total(self) -> Cost:
        """All kinds together."""
        return sum(self.by_kind.values(), Cost())


class Shape(NamedTuple):
    """A tensor without values.

    Args:
        rows: positions.
        cols: values of each.
    """

    rows: int
    cols: int

    @property
    def size(self) -> int:
        """Values in it."""
        return self.rows * self.cols


@dataclass(frozen=True, eq=False)
class CostWeight:
    """A weight without values.

    Args:
        rows: outputs O; 1 for a vector.
        cols: inputs D; the length of a vector.
        nbytes: bytes as the compiled kernels keep them.
    """

    rows: int
    cols: int
    nbytes: int


@dataclass(frozen=True)
class CostPool:
    """A KV pool without storage."""

    spec: KVCacheSpec
    num_blocks: int

    @property
    def nbytes(self) -> int:
        """Bytes it would take when every block is in use."""
        return self.num_blocks * self.spec.page_bytes


def num_attended(position_start: int, num_tokens: int, window: int | None = None) -> int:
    """Dot products q . k of one head and layer for consecutive query positions.

    The query at position p sees positions max(0, p - window + 1) .. p.

    Args:
        position_start: position of the first query, >= 0.
        num_tokens: queries, >= 0.
        window: positions a query sees, itself included; None for all before it.

    Returns:
        The sum of min(p + 1, window) over the queries: n(n + 1) / 2 for n positions from 0.
    """

    def below(stop: int) -> int:  # the same sum over positions 0 .. stop - 1
        full = stop if window is None else min(stop, window)
        return full * (full + 1) // 2 + (stop - full) * full

    return below(position_start + num_tokens) - below(position_start)


class CostOps:
    """Backend whose tensors are shapes; every call adds to the cost of the current step.

    Weights count once per step, however many rows or calls use them; an embedding counts the rows
    looked up. It reads names, shapes and types of tensors, never their data, so it works on a
    checkpoint that has none.
    """

    def __init__(self) -> None:
        self._tensors: dict[str, RawTensor] = {}
        # Per window, what the sequences of a batch see: the same for all layers.
        self._batch: ForwardBatch | None = None
        self._seen: dict[int | None, tuple[int, int]] = {}
        self._reset()

    @property
    def total_weight_bytes(self) -> int:
        """Bytes of all weights prepared, in the types of the file; a tied matrix counts once."""
        return sum(t.nbytes for t in self._tensors.values())

    @property
    def total_memory_bytes(self) -> int:
        """Bytes of all weights prepared, as the compiled kernels keep them."""
        return sum(memory_bytes(t) for t in self._tensors.values())

    @property
    def num_parameters(self) -> int:
        """Values of all weights prepared; a tied matrix counts once."""
        return sum(t.num_values for t in self._tensors.values())

    @property
    def cost(self) -> StepCost:
        """Everything since the last `begin_step`."""
        return StepCost({kind: replace(cost) for kind, cost in self._by_kind.items()})

    def prepare(self, role: WeightRole, tensors: Sequence[RawTensor]) -> CostWeight:
        """Note the tensors, stacked along outputs when several.

        Raises:
            UnsupportedModelError: the size of a tensor's type is not known.
        """
        for tensor in tensors:
            if not tensor.type.has_known_size:
                raise UnsupportedModelError(
                    "model",
                    f"tensor {tensor.name}",
                    f"the size of type {tensor.type.name} is "
                    "not known: choose a file with other types",
                )
            self._tensors[tensor.name] = tensor
        nbytes = sum(memory_bytes(t) for t in tensors)
        if role == "vector":
            return CostWeight(1, sum(t.num_values for t in tensors), nbytes)
        return CostWeight(sum(t.shape[0] for t in tensors), tensors[0].shape[-1], nbytes)

    def begin_step(self, batch: ForwardBatch, kv: CostPool) -> None:
        """Start a step at zero and count its block copies, of one page each."""
        self._reset()
        copied = len(batch.block_copies) * kv.spec.page_bytes
        other = self._by_kind["other"]
        other.kv_bytes_read += copied
        other.kv_bytes_written += copied

    def embedding(self, weight: CostWeight, batch: ForwardBatch, scale: float = 1.0) -> Shape:
        """Rows of `weight` [V, D] for the batch's token ids, times `scale` -> [T, D]."""
        out = Shape(batch.num_tokens, weight.cols)
        self._count("other", 0 if scale == 1.0 else out.size, inputs=0, outputs=out.size)
        self._by_kind["other"].weight_bytes += batch.num_tokens * (weight.nbytes // weight.rows)
        return out

    def linear(self, x: Shape, weight: CostWeight, bias: CostWeight | None = None) -> Shape:
        """x [T, D] times the transpose of weight [O, D], plus bias [O] -> [T, O]."""
        assert x.cols == weight.cols, f"linear of {x} with a weight of {weight.cols} inputs"
        out = Shape(x.rows, weight.rows)
        self._count("linear", 2 * x.rows * weight.rows * weight.cols, x.size, out.size)
        self._read("linear", weight)
        if bias is not None:
            self._count("linear", out.size, inputs=0, outputs=0)
            self._read("linear", bias)
        return out

    def rms_norm(self, x: Shape, weight: CostWeight, eps: float) -> Shape:
        """Root-mean-square norm over each run of len(weight) values."""
        self._count("norm", _NORM_FLOPS * x.size, x.size, x.size)
        self._read("norm", weight)
        return x

    def add_rms_norm(
        self, x: Shape, residual: Shape | None, weight: CostWeight, eps: float
    ) -> tuple[Shape, Shape]:
        """(rms_norm(x + residual), x + residual); a residual of None is zero."""
        if residual is not None:
            self.add(x, residual)
        return self.rms_norm(x, weight, eps), x

    def add(self, x: Shape, residual: Shape) -> Shape:
        """x + residual, which is in a register already when the norm behind it reads it."""
        assert x == residual, f"add of {x} and {residual}"
        self._count("norm", x.size, residual.size, x.size)
        return x

    def rope(self, x: Shape, batch: ForwardBatch, spec: RopeSpec) -> Shape:
        """Rotate every head of x [T, H d] by the row's position."""
        self._count("other", _ROPE_FLOPS * x.size, x.size, x.size)
        return x

    def store_kv(
        self, k: Shape, v: Shape, batch: ForwardBatch, kv: CostPool, spec: AttentionSpec
    ) -> None:
        """Store k and v [T, K d] at the batch's slots of the layer's group."""
        self._count("attention", 0, inputs=k.size + v.size, outputs=0)
        stored = int(np.count_nonzero(batch.slot_mapping[spec.group] != PADDED_SLOT))
        token_bytes = kv.spec.groups[spec.group].layer_bytes_per_token
        self._by_kind["attention"].kv_bytes_written += stored * token_bytes

    def paged_attention(
        self, q: Shape, batch: ForwardBatch, kv: CostPool, spec: AttentionSpec
    ) -> Shape:
        """Causal attention of q [T, H d] over all stored positions of its sequence -> [T, H d].

        A step reads the keys and values that any query of a sequence sees once; q . k and p . v
        take 2 d operations each per head and position seen.
        """
        if self._batch is not batch:
            self._batch = batch
            self._seen.clear()
        if spec.window not in self._seen:
            self._seen[spec.window] = _positions_seen(batch, spec.window)
        attended, positions_read = self._seen[spec.window]
        self._count("attention", 4 * spec.head_dim * spec.num_heads * attended, q.size, q.size)
        token_bytes = kv.spec.groups[spec.group].layer_bytes_per_token
        self._by_kind["attention"].kv_bytes_read += positions_read * token_bytes
        self._by_kind["attention"].attended += attended
        return q

    def silu_mul(self, gate: Shape, up: Shape) -> Shape:
        """silu(gate) x up -> [T, I]."""
        return self._gated(gate, up, _SILU_MUL_FLOPS)

    def gelu_mul(self, gate: Shape, up: Shape) -> Shape:
        """gelu(gate) x up -> [T, I]."""
        return self._gated(gate, up, _GELU_MUL_FLOPS)

    def softcap(self, x: Shape, cap: float) -> Shape:
        """cap x tanh(x / cap)."""
        self._count("other", _SOFTCAP_FLOPS * x.size, x.size, x.size)
        return x

    def take(self, x: Shape, batch: ForwardBatch) -> Shape:
        """The batch's logits rows of x [T, D] -> [R, D]."""
        out = Shape(len(batch.logits_indices), x.cols)
        self._count("other", 0, out.size, out.size)
        return out

    def new_kv_pool(self, spec: KVCacheSpec, num_blocks: int) -> CostPool:
        """A pool without storage."""
        return CostPool(spec, num_blocks)

    def read_block(self, kv: CostPool, block: int) -> bytes:
        """A block of zeros: there is no storage."""
        return bytes(kv.spec.page_bytes)

    def write_block(self, kv: CostPool, block: int, content: bytes) -> None:
        """Nothing: there is no storage."""

    def _reset(self) -> None:
        self._by_kind: defaultdict[CostKind, Cost] = defaultdict(Cost)
        self._weights_read: set[CostWeight] = set()

    def _count(self, kind: CostKind, flops: int, inputs: int, outputs: int) -> None:
        """Add an operation that reads and writes that many float32 values."""
        cost = self._by_kind[kind]
        cost.flops += flops
        cost.activation_bytes_read += ACTIVATION_BYTES * inputs
        cost.activation_bytes_written += ACTIVATION_BYTES * outputs

    def _read(self, kind: CostKind, weight: CostWeight) -> None:
        if weight not in self._weights_read:
            self._weights_read.add(weight)
            self._by_kind[kind].weight_bytes += weight.nbytes

    def _gated(self, gate: Shape, up: Shape, flops: int) -> Shape:
        assert gate == up, f"gate {gate} and up {up} differ"
        self._count("other", flops * gate.size, gate.size + up.size, gate.size)
        return gate


def step_cost(
    ops: CostOps,
    forward: Callable[[ForwardBatch, CostPool], object],
    batch: ForwardBatch,
    kv: CostPool,
) -> StepCost:
    """What one step of a model costs.

    Args:
        ops: the backend that the model was built over.
        forward: the model: takes the batch and the pool.
        batch: what to compute; token ids, slots and block tables need not be real.
        kv: a pool of `ops`.
    """
    ops.begin_step(batch, kv)
    forward(batch, kv)
    return ops.cost


def planned_batch(spans: Sequence[tuple[int, int]], num_groups: int) -> ForwardBatch:
    """A batch for `step_cost`, of sequences that need the logits of their last row.

    Args:
        spans: per sequence (first position, number of positions >= 1) of this step: (0, 512) is
            a whole prompt, (512, 1) a decode step behind it.
        num_groups: KV groups of the model.
    """
    lengths = np.array([count for _, count in spans], dtype=np.int32)
    positions = [np.arange(start, start + count, dtype=np.int32) for start, count in spans]
    ends = np.cumsum(lengths, dtype=np.int32)
    num_tokens = int(lengths.sum())
    return ForwardBatch(
        token_ids=np.zeros(num_tokens, dtype=np.int32),
        positions=np.concatenate([np.zeros(0, dtype=np.int32), *positions]),
        query_start_loc=np.concatenate([np.zeros(1, dtype=np.int32), ends]),
        seq_lens=np.array([start + count for start, count in spans], dtype=np.int32),
        block_tables=(np.zeros((len(spans), 0), dtype=np.int32),) * num_groups,
        slot_mapping=(np.zeros(num_tokens, dtype=np.int32),) * num_groups,
        logits_indices=ends - 1,
    )


def _positions_seen(batch: ForwardBatch, window: int | None) -> tuple[int, int]:
    """Dot products of one head, and positions whose keys and values are read, in one layer."""
    attended = positions_read = 0
    for sequence in range(batch.num_seqs):
        rows = batch.rows_of(sequence)
        num_tokens = rows.stop - rows.start
        if num_tokens == 0 or batch.seq_lens[sequence] == 0:  # a padded sequence
            continue
        start = int(batch.positions[rows.start])
        attended += num_attended(start, num_tokens, window)
        first = 0 if window is None else max(0, start - window + 1)
        positions_read += start + num_tokens - first
    return attended, positions_read
