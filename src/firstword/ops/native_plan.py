"""A planned network in the compiled module, and the arrays of each step that it is run with.

Not here: the passes that make the plan (passes) and the choice of tokens (sampling.native).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firstword._native as _native
from firstword.batch import Float32Array, ForwardBatch, Int32Array
from firstword.errors import StepStoppedError
from firstword.kvcache.spec import KVCacheSpec
from firstword.ops import record
from firstword.ops.cost import planned_batch
from firstword.ops.native import NativeOps, NativeWeight, activation_run
from firstword.ops.native_kv import NativeKVPool
from firstword.ops.passes import BufferRows, Plan, Stage, make_plan
from firstword.ops.protocol import AttentionSpec, RopeSpec
from firstword.ops.record import Symbol, Value
from firstword.ops.trigonometry import cos_sin

_FIRST_POSITIONS = 512  # of a rope table; doubled whenever a sequence grows beyond


@dataclass(frozen=True)
class NativeResult:
    """What a step computed.

    Args:
        values: [R', V] logits, one row for each row of the batch that needs them, named once. A
            view: the next step overwrites it.
        rows: [R] which of them each entry of the batch's `logits_indices` is.
        outcomes: per strategy, its token.
        sampling_ms: milliseconds of the call that it took to choose them.
        span: when the call began and ended, in seconds of `time.perf_counter`.
    """

    values: Float32Array
    rows: Int32Array
    outcomes: Sequence[_native.Outcome]
    sampling_ms: float
    span: tuple[float, float]

    @property
    def milliseconds(self) -> float:
        """Of the whole call."""
        start, end = self.span
        return (end - start) * 1e3


@dataclass(frozen=True)
class PreparedStep:
    """A step that is ready to run.

    Args:
        step: its arrays, as the compiled module takes them.
        token_ids: [T] the array among them that may still be filled in.
        num_logits: rows that need logits, named once.
        rows: [R] which of them each entry of the batch's `logits_indices` is.
        kv: the KV pool.
        strategies: R, or none.
    """

    step: _native.Step
    token_ids: Int32Array
    num_logits: int
    rows: Int32Array
    kv: NativeKVPool
    strategies: Sequence[_native.Strategy]


class NativeModel:
    """A model that runs in one call per step.

    Args:
        ops: the backend that prepared the weights.
        model: the network, bound to `ops`.
        spec: the KV groups.
        vocab_size: V.
        fused: False runs the operations one by one, as they were recorded.

    Attributes:
        native_ms: milliseconds that the last step spent in the compiled module, sampling included.
    """

    def __init__(
        self,
        ops: NativeOps,
        model: Callable[[ForwardBatch, Any], Symbol],
        spec: KVCacheSpec,
        vocab_size: int,
        *,
        fused: bool = True,
    ) -> None:
        self.ops, self.vocab_size = ops, vocab_size
        recording = ops.record(model, planned_batch([(0, 1)], len(spec.groups)))
        self.plan = make_plan(recording, activation_run, fused=fused)
        self._ropes = [RopeTable(rope) for rope in _rope_specs(self.plan)]
        self._windows = [group.window or 0 for group in spec.groups]
        self._native = lower(self.plan, ops)
        self._sampler = _native.Sampler(ops.backend)
        self.native_ms = 0.0

    def __call__(self, batch: ForwardBatch, kv: NativeKVPool) -> Float32Array:
        """One forward pass -> logits [R, V] of the batch's logits rows, a copy."""
        result = self.run(batch, kv)
        out: Float32Array = result.values[result.rows]
        return out

    def run(
        self, batch: ForwardBatch, kv: NativeKVPool, strategies: Sequence[_native.Strategy] = ()
    ) -> NativeResult:
        """One forward pass, and a token for each strategy.

        Args:
            batch: R rows that need logits.
            kv: the KV pool.
            strategies: R of them, or none.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed on the way; other signal handlers' exceptions too.
            StepStoppedError: `stop` was called.
        """
        return self.run_prepared(self.prepare(batch, kv, strategies))

    def prepare(
        self, batch: ForwardBatch, kv: NativeKVPool, strategies: Sequence[_native.Strategy] = ()
    ) -> PreparedStep:
        """All of `run` that can be done while another step runs; arguments as there.

        The step reads the batch's own array of token ids when it is run.
        """
        wanted, rows = _named_once(batch.logits_indices)
        token_ids = _int32(batch.token_ids)
        step = self._step(batch, token_ids, wanted)
        return PreparedStep(step, token_ids, len(wanted), rows, kv, strategies)

    def run_prepared(self, prepared: PreparedStep) -> NativeResult:
        """Run a prepared step; errors as for `run`."""
        strategies, rows = prepared.strategies, prepared.rows
        is_main = threading.current_thread() is threading.main_thread()
        buffer = self.plan.places[self.plan.result]
        start = time.perf_counter()
        sampled = self._native.run(
            self._sampler,
            prepared.step,
            prepared.kv.pages,
            self.vocab_size,
            self._windows,
            buffer,
            rows[: len(strategies)],
            strategies,
            is_main,
        )
        end = time.perf_counter()
        self.native_ms = (end - start) * 1e3
        if sampled is None:
            raise StepStoppedError("the step was stopped before its end: run its sequences again")
        outcomes, seconds = sampled
        values = self._native.floats(buffer, prepared.num_logits, self.vocab_size)
        return NativeResult(values, rows, outcomes, seconds * 1e3, (start, end))

    def stop(self) -> None:
        """End the running step, or else the next, within 100 ms; it raises StepStoppedError."""
        self._native.stop()

    def clear_stop(self) -> None:
        """Forget a stop that no step has ended at; not while a step runs."""
        self._native.clear_stop()

    def reserve(self, num_tokens: int, num_logits: int) -> None:
        """Take the scratch memory for steps of this size now."""
        self._native.reserve(num_tokens, num_logits)

    def measure(self, on: bool) -> None:
        """Time every stage from now on, or do so no longer; not while a step runs."""
        self._native.measure(on)

    @property
    def stage_ns(self) -> list[int]:
        """Nanoseconds of each stage, over all steps since `measure`."""
        return self._native.stage_ns

    @property
    def progress(self) -> int:
        """Stages run so far, over all steps."""
        return self._native.progress

    @property
    def stages_per_step(self) -> int:
        """Stages of one step."""
        return len(self.plan.stages)

    @property
    def scratch_bytes(self) -> int:
        """Bytes held besides weights and KV pool."""
        return self._native.scratch_bytes

    def _step(self, batch: ForwardBatch, token_ids: Int32Array, rows: Int32Array) -> _native.Step:
        last = max(batch.seq_lens.tolist(), default=1) - 1
        copies = np.array(batch.block_copies, dtype=np.int32).reshape(-1, 3)
        return _native.Step(
            token_ids=token_ids,
            positions=_int32(batch.positions),
            query_start_loc=_int32(batch.query_start_loc),
            seq_lens=_int32(batch.seq_lens),
            logits_rows=rows,
            block_tables=[_int32(table) for table in batch.block_tables],
            slot_mapping=[_int32(slots) for slots in batch.slot_mapping],
            ropes=[table.up_to(last) for table in self._ropes],
            block_copies=copies,
        )


class RopeTable:
    """Cosines and sines of positions, computed when a sequence first gets there.

    Angles are float32 products, as in the code that models are trained with; their cosines and
    sines are rounded once.
    """

    def __init__(self, spec: RopeSpec) -> None:
        self._inv_freq = np.array(spec.inv_freq, dtype=np.float32)  # [d / 2]
        self._factor = np.float32(spec.attention_factor)
        self._tables = self._compute(_FIRST_POSITIONS)

    def up_to(self, position: int) -> tuple[Float32Array, Float32Array]:
        """Cosines and sines [P, d / 2] with P > position."""
        length = len(self._tables[0])
        if position >= length:
            while length <= position:
                length *= 2
            self._tables = self._compute(length)
        return self._tables

    def _compute(self, length: int) -> tuple[Float32Array, Float32Array]:
        angles = np.arange(length, dtype=np.float32)[:, None] * self._inv_freq
        cos, sin = cos_sin(angles)
        return cos * self._factor, sin * self._factor


def _named_once(indices: Int32Array) -> tuple[Int32Array, Int32Array]:
    """Increasing indices without repetition, and which of them each entry is."""
    if len(indices) < 2 or bool((indices[1:] > indices[:-1]).all()):
        return indices, np.arange(len(indices), dtype=np.int32)
    wanted, inverse = np.unique(indices, return_inverse=True)
    return _int32(wanted), inverse.astype(np.int32)


def lower(plan: Plan[NativeWeight], ops: NativeOps) -> _native.Plan:
    """Hand a plan over to the compiled module."""
    buffers = [_native.BufferSpec(_ROWS[b.rows], b.width, b.run) for b in plan.buffers]
    native = _native.Plan(ops.backend, ops.weights, buffers)
    lowering = _Lowering(plan)
    for stage in plan.stages:
        native.add(lowering.stage(stage))
    return native


_ROWS: dict[BufferRows, _native.Rows] = {
    "tokens": _native.Rows.TOKENS,
    "logits": _native.Rows.LOGITS,
    "threads": _native.Rows.THREADS,
}


class _Lowering:
    """Turns the operations of one plan into those of the compiled module."""

    def __init__(self, plan: Plan[NativeWeight]) -> None:
        self._plan = plan
        self._ropes = _rope_specs(plan)

    def stage(self, stage: Stage[NativeWeight]) -> _native.Stage:
        rows, op = _ROWS[stage.rows], stage.ops[0]
        if isinstance(op, record.Linear):
            return self._linear(rows, op)
        if isinstance(op, record.Attention):
            out = self._operand(op.out)
            return _native.AttentionStage(rows, self._operand(op.q), _layer(op.spec), out)
        return _native.RowsStage(rows, [self._row_op(op) for op in stage.ops])

    def _operand(self, value: Value) -> _native.Operand:
        return _native.Operand(self._plan.places[value], self._plan.widths[value])

    def _linear(self, rows: _native.Rows, op: record.Linear[NativeWeight]) -> _native.LinearStage:
        segments = [
            _native.LinearSegment(
                weight.index, -1 if bias is None else bias.index, self._operand(out)
            )
            for weight, bias, out in zip(op.weights, op.biases, op.outs, strict=True)
        ]
        a32, a256 = (self._plan.quantized.get((op.x, run), -1) for run in (32, 256))
        return _native.LinearStage(rows, self._operand(op.x), a32, a256, segments)

    def _row_op(self, op: record.Op[NativeWeight]) -> _native.RowOp:
        at = self._operand
        match op:
            case record.Embedding(weight, scale, out):
                return _native.Embed(weight.index, scale, at(out))
            case record.Add(a, b, out):
                return _native.Add(at(a), at(b), at(out))
            case record.Norm(x, weight, eps, out):
                return _native.Norm(at(x), weight.index, eps, at(out))
            case record.Rope(x, spec, out):
                table = self._ropes.index(spec)
                return _native.Rope(at(x), table, spec.head_dim, spec.interleaved, at(out))
            case record.StoreKV(k, v, attention):
                return _native.StoreKV(at(k), at(v), _layer(attention))
            case record.Activate(kind, gate, up, out):
                return _native.Activate(kind == "gelu", at(gate), at(up), at(out))
            case record.Softcap(x, cap, out):
                return _native.Softcap(at(x), cap, at(out))
            case record.Take(x, out):
                return _native.Take(at(x), at(out))
            case record.Quantize(x, run):
                return _native.Quantize(at(x), self._plan.quantized[x, run])
        raise AssertionError(f"{op} does not work row by row")


def _rope_specs(plan: Plan[NativeWeight]) -> list[RopeSpec]:
    """The different rotations of a plan, in the order they first occur."""
    specs = (op.spec for s in plan.stages for op in s.ops if isinstance(op, record.Rope))
    return list(dict.fromkeys(specs))


def _layer(spec: AttentionSpec) -> _native.AttentionLayer:
    return _native.AttentionLayer(
        spec.group,
        spec.index_in_group,
        spec.num_heads,
        spec.num_kv_heads,
        spec.head_dim,
        spec.scale,
        spec.window or 0,
        spec.softcap or 0.0,
    )


def _int32(array: NDArray[np.int32]) -> Int32Array:
    return np.ascontiguousarray(array, dtype=np.int32)
