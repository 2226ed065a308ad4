"""Whether the compiled kernels compute here what they should: one small linear, two kernel sets.

Not here: the correctness of every kernel, which the tests show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from firstword.batch import Float32Array, ForwardBatch
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.ops.cost import planned_batch
from firstword.ops.native import NativeOps
from firstword.ops.native_plan import NativeModel
from firstword.ops.record import Symbol
from firstword.quant import GGMLType, RawTensor

_ROWS, _INPUTS, _OUTPUTS = 7, 256, 48
_SPEC = KVCacheSpec((KVGroup("full", "full", (0,), 1, 16, "float16", "float16"),))


def same_as_generic(isa: str = "") -> bool:
    """Whether a 4-bit linear has the bits of the independent scalar kernels, and finite ones.

    Args:
        isa: the instruction set to check; "" for the one that would be used.

    Raises:
        ConfigError: it is not built or does not run here.
    """
    ours, scalar = _compute(isa), _compute("generic")
    return bool(np.isfinite(ours).all()) and ours.tobytes() == scalar.tobytes()


def _compute(isa: str) -> Float32Array:
    """[_ROWS, _OUTPUTS] of the same input and weight, whatever the instruction set."""
    ops = NativeOps(isa=isa)
    model = NativeModel(ops, _Network(ops), _SPEC, _OUTPUTS)
    rows = np.arange(_ROWS, dtype=np.int32)
    table = np.zeros((1, 1), dtype=np.int32)
    batch = replace(
        planned_batch([(0, _ROWS)], 1),
        token_ids=rows,
        logits_indices=rows,
        block_tables=(table,),
    )
    return model(batch, ops.new_kv_pool(_SPEC, 1))


class _Network:
    """Embeddings, and one linear: float rows are quantized and multiplied with 4-bit weights."""

    def __init__(self, ops: NativeOps) -> None:
        self._ops = ops
        inputs = _inputs().reshape(-1)
        embedding = RawTensor("inputs", (_ROWS, _INPUTS), GGMLType.F32, inputs.view(np.uint8))
        self._embedding = ops.prepare("embedding", [embedding])
        self._weight = ops.prepare("linear", [_weight()])

    def __call__(self, batch: ForwardBatch, kv: Any) -> Symbol:
        self._ops.begin_step(batch, kv)
        return self._ops.linear(self._ops.embedding(self._embedding, batch), self._weight)


def _inputs() -> Float32Array:
    """[_ROWS, _INPUTS] of either sign."""
    numbers = np.arange(_ROWS * _INPUTS).reshape(_ROWS, _INPUTS) * 37 % 201 - 100
    return numbers.astype(np.float32) / np.float32(64)


def _weight() -> RawTensor:
    """Blocks of a half-precision scale and 16 bytes of codes, all codes in use."""
    num_blocks = _OUTPUTS * _INPUTS // 32
    blocks = np.arange(num_blocks * 18, dtype=np.uint32) * 37 % 251
    data = blocks.astype(np.uint8).reshape(num_blocks, 18)
    scales = (1 + np.arange(num_blocks) % 5).astype("<f2") / np.float16(64)
    data[:, :2] = scales.view(np.uint8).reshape(num_blocks, 2)
    return RawTensor("weight", (_OUTPUTS, _INPUTS), GGMLType.Q4_0, data.reshape(-1))
