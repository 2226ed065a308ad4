"""The `Ops` protocol in NumPy: slow and clear, the oracle of every test, and what a learner reads.

Not here: speed (native kernels) and what a network computes (models).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from firstword.batch import PADDED_SLOT, Float32Array, ForwardBatch
from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec
from firstword.kvcache.storage import KVArray, KVView, PagedStorage
from firstword.ops.int8 import int8_linear
from firstword.ops.int8_kv import quantize_keys, quantize_values
from firstword.ops.protocol import AttentionSpec, RopeSpec, WeightRole
from firstword.ops.reference_attention import blas_attention, exact_attention, soft_cap
from firstword.ops.reference_linear import blas_linear, exact_linear
from firstword.ops.reference_weight import ReferenceWeight, prepare_weight
from firstword.ops.trigonometry import cos_sin
from firstword.quant import RawTensor

ReferenceMode = Literal["blas", "exact", "int8"]
_MODES = ("blas", "exact", "int8")
_FLOAT16_MAX = np.float32(65504.0)

_Where = tuple[NDArray[Any], int, slice, NDArray[Any]]
_Quantize = Callable[[Float32Array], tuple[NDArray[np.int8], NDArray[np.float16]]]

# Weights of a broken file may be infinite or NaN: the result then says so, and no warning does.
_quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")


class ReferenceOps:
    """NumPy backend: tensors are float32 arrays.

    Args:
        mode: how products are computed.
            "blas": float32 by BLAS, for interactive use. The bits of a row depend on how many
            rows are beside it.
            "exact": float64, rounded once to float32. A row's bits depend on nothing but its own
            sequence (on one machine with one number of BLAS threads).
            "int8": as "exact", but `linear` quantizes activations to 8 bits and adds integers,
            with the bits that the native kernels must give (see ops.int8).

    Raises:
        ConfigError: no such mode.
    """

    def __init__(self, mode: ReferenceMode = "blas") -> None:
        if mode not in _MODES:
            raise ConfigError(f"mode is {mode!r}: it must be one of {', '.join(_MODES)}")
        self.mode = mode
        self._rope_batch: ForwardBatch | None = None
        self._rope_tables: dict[RopeSpec, tuple[Float32Array, Float32Array]] = {}

    def prepare(self, role: WeightRole, tensors: Sequence[RawTensor]) -> ReferenceWeight:
        """Turn tensors, stacked along outputs when several, into a weight.

        A matrix is unpacked when it is first multiplied; "embedding" and "linear" make the same
        kind of weight, so one tied matrix serves as both and is unpacked once.

        Raises:
            UnsupportedModelError: the type of a tensor is not built.
        """
        return prepare_weight(role, tensors)

    def begin_step(self, batch: ForwardBatch, kv: PagedStorage) -> None:
        """Run the batch's block copies, in order."""
        for span in batch.block_copies:
            kv.copy(span)

    @_quiet
    def embedding(
        self, weight: ReferenceWeight, batch: ForwardBatch, scale: float = 1.0
    ) -> Float32Array:
        """Rows of `weight` [V, D] for the batch's token ids, times `scale` -> [T, D]."""
        ids = batch.token_ids
        vocab_size = weight.shape[0]
        assert ((ids >= 0) & (ids < vocab_size)).all(), (
            f"token ids {ids.tolist()} must lie in [0, {vocab_size}): the runner replaces "
            "references to sampled tokens before a forward pass"
        )
        rows = weight.rows(ids)
        return rows if scale == 1.0 else rows * np.float32(scale)

    @_quiet
    def linear(
        self, x: Float32Array, weight: ReferenceWeight, bias: ReferenceWeight | None = None
    ) -> Float32Array:
        """x [T, D] times the transpose of weight [O, D], plus bias [O] -> [T, O]."""
        values = None if bias is None else bias.dense
        if self.mode == "exact":
            return exact_linear(x, weight.dense, values)
        if self.mode == "int8":
            out = np.concatenate([int8_linear(x, part) for part in weight.integers], axis=1)
        else:
            out = blas_linear(x, weight.dense)
        return out if values is None else out + values

    @_quiet
    def rms_norm(self, x: Float32Array, weight: ReferenceWeight, eps: float) -> Float32Array:
        """Root-mean-square norm (Zhang and Sennrich, 2019, arXiv 1910.07467) over each run of
        len(weight) values: whole rows [T, D], or every head of a row.

        The mean is taken in float64, run by run.
        """
        scale = weight.dense
        runs = x.reshape(len(x), -1, len(scale))
        mean_square = np.square(runs.astype(np.float64)).mean(axis=-1, keepdims=True)
        inverse = (1.0 / np.sqrt(mean_square + eps)).astype(np.float32)
        out: Float32Array = runs * inverse * scale
        return out.reshape(x.shape)

    @_quiet
    def add_rms_norm(
        self, x: Float32Array, residual: Float32Array | None, weight: ReferenceWeight, eps: float
    ) -> tuple[Float32Array, Float32Array]:
        """(rms_norm(x + residual), x + residual); a residual of None is zero."""
        total = x if residual is None else x + residual
        return self.rms_norm(total, weight, eps), total

    @_quiet
    def rope(self, x: Float32Array, batch: ForwardBatch, spec: RopeSpec) -> Float32Array:
        """Rotate every head of x [T, H d] by the row's position -> [T, H d].

        Angles are float32 products, as in the code that models are trained with: at position 1,500
        an exact angle differs from those by up to 1e-4. Their cosines and sines are rounded once.
        """
        cos, sin = self._rope_table(batch, spec)  # [T, 1, d / 2]
        heads = x.reshape(len(x), -1, spec.head_dim)
        half = spec.head_dim // 2
        if spec.interleaved:
            first, second = slice(0, None, 2), slice(1, None, 2)
        else:
            first, second = slice(0, half), slice(half, None)
        out = np.empty_like(heads)
        x1, x2 = heads[..., first], heads[..., second]
        out[..., first] = x1 * cos - x2 * sin
        out[..., second] = x2 * cos + x1 * sin
        return out.reshape(x.shape)

    def _rope_table(self, batch: ForwardBatch, spec: RopeSpec) -> tuple[Float32Array, Float32Array]:
        """Cosines and sines of the batch's positions, kept for all layers of a step."""
        if self._rope_batch is not batch:
            self._rope_batch = batch
            self._rope_tables.clear()
        if spec not in self._rope_tables:
            inv_freq = np.array(spec.inv_freq, dtype=np.float32)  # [d / 2]
            angles = batch.positions[:, None, None].astype(np.float32) * inv_freq
            factor = np.float32(spec.attention_factor)
            cos, sin = cos_sin(angles)
            self._rope_tables[spec] = cos * factor, sin * factor
        return self._rope_tables[spec]

    @_quiet
    def store_kv(
        self,
        k: Float32Array,
        v: Float32Array,
        batch: ForwardBatch,
        kv: PagedStorage,
        spec: AttentionSpec,
    ) -> None:
        """Store k and v [T, K d] at the batch's slots of the layer's group.

        Values are rounded to the pool's type, half to even; in float16 those beyond +-65504
        become +-65504, since one infinite key would turn a whole softmax into NaN. In q8 they
        become the codes and scales of ops.int8_kv.
        """
        slots = batch.slot_mapping[spec.group]
        rows = np.flatnonzero(slots != PADDED_SLOT)
        blocks, offsets = np.divmod(slots[rows], kv.spec.block_size)
        where = (blocks, spec.index_in_group, slice(None), offsets)
        shape = (len(rows), spec.num_kv_heads, spec.head_dim)
        _put(k[rows].reshape(shape), kv.keys(spec.group), where, quantize_keys)
        _put(v[rows].reshape(shape), kv.values(spec.group), where, quantize_values)

    @_quiet
    def paged_attention(
        self, q: Float32Array, batch: ForwardBatch, kv: PagedStorage, spec: AttentionSpec
    ) -> Float32Array:
        """Causal attention of q [T, H d] over all stored positions of its sequence -> [T, H d].

        Rows of padded sequences (no tokens stored) give zeros.
        """
        attend = blas_attention if self.mode == "blas" else exact_attention
        return attend(q, batch, kv, spec)

    @_quiet
    def silu_mul(self, gate: Float32Array, up: Float32Array) -> Float32Array:
        """silu(gate) x up -> [T, I], with silu(x) = x / (1 + exp(-x))."""
        # exp(-|x|) never overflows: sigmoid is 1 / (1 + e) on the right and e / (1 + e) left of 0.
        e = np.exp(-np.abs(gate))
        sigmoid = np.where(gate >= 0, np.float32(1), e) / (1 + e)
        out: Float32Array = gate * sigmoid * up
        return out

    @_quiet
    def gelu_mul(self, gate: Float32Array, up: Float32Array) -> Float32Array:
        """gelu(gate) x up -> [T, I], with the tanh form of gelu (Hendrycks and Gimpel, 2016,
        arXiv 1606.08415)."""
        inner = np.float32(np.sqrt(2 / np.pi)) * (gate + np.float32(0.044715) * gate**3)
        out: Float32Array = np.float32(0.5) * gate * (1 + np.tanh(inner)) * up
        return out

    @_quiet
    def softcap(self, x: Float32Array, cap: float) -> Float32Array:
        """cap x tanh(x / cap)."""
        return soft_cap(x, cap).astype(np.float32, copy=False)

    def take(self, x: Float32Array, batch: ForwardBatch) -> Float32Array:
        """The batch's logits rows of x [T, D] -> [R, D]."""
        return x[batch.logits_indices]

    def new_kv_pool(self, spec: KVCacheSpec, num_blocks: int) -> PagedStorage:
        """Storage for `num_blocks` blocks of the groups of `spec`."""
        return PagedStorage(spec, num_blocks)

    def read_block(self, kv: PagedStorage, block: int) -> bytes:
        """The whole content of a block, as `write_block` takes it."""
        return kv.read_block(block)

    def write_block(self, kv: PagedStorage, block: int, content: bytes) -> None:
        """Set the whole content of a block.

        Raises:
            ConfigError: the content has another length than a page of this pool.
        """
        kv.write_block(block, content)


def _put(heads: Float32Array, to: KVView, where: _Where, quantize: _Quantize) -> None:
    """Store heads [T, K, d] in `to`, quantized if it has scales."""
    if to.scales is None:
        to.values[where] = _to_kv_type(heads, to.values)
    else:
        to.values[where], to.scales[where] = quantize(heads)


def _to_kv_type(values: Float32Array, pages: KVArray) -> KVArray:
    """Round to the type of the pool; what float16 cannot hold becomes its largest value."""
    if pages.dtype == np.float16:
        values = np.clip(values, -_FLOAT16_MAX, _FLOAT16_MAX)
    return values.astype(pages.dtype)
