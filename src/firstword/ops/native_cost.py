"""What each operation of a compiled plan takes, from the shapes in a file's headers alone.

The numbers are those of `CostOps`, which every operation is played to once more. Not here: how a
plan is shown (plan.listing) and run (native_plan).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from firstword.batch import ForwardBatch
from firstword.kvcache.spec import KVCacheSpec
from firstword.ops import record
from firstword.ops.cost import Cost, CostOps, CostWeight, Shape, planned_batch
from firstword.ops.native import NativeOps, NativeWeight, activation_run
from firstword.ops.passes import Plan, Rows, make_plan
from firstword.ops.protocol import WeightRole
from firstword.ops.record import Recorder, Symbol
from firstword.ops.weight_types import check_built
from firstword.quant import GGMLType, RawTensor


class HeaderOps(NativeOps):
    """`NativeOps` that only records: its weights have shapes and types, and no numbers."""

    def __init__(self) -> None:
        self.cost = CostOps()
        self.cost_weights: list[CostWeight] = []
        self._recorder: Recorder[NativeWeight] = Recorder()

    def prepare(self, role: WeightRole, tensors: Sequence[RawTensor]) -> NativeWeight:
        """A weight without numbers, whose index is that of its twin in `cost_weights`.

        Raises:
            UnsupportedModelError: the tensor's type is not built.
        """
        first = tensors[0]
        ggml_type = GGMLType.F32 if role == "vector" else first.type
        check_built(first)
        self.cost_weights.append(self.cost.prepare(role, tensors))
        shape = (sum(tensor.shape[0] for tensor in tensors), *first.shape[1:])
        return NativeWeight(shape, ggml_type, len(self.cost_weights) - 1)

    def plan(
        self, model: Callable[[ForwardBatch, Any], Symbol], num_groups: int
    ) -> Plan[NativeWeight]:
        """The plan that `NativeModel` would run.

        Args:
            model: a network bound to this backend.
            num_groups: its KV groups.
        """
        return make_plan(self.record(model, planned_batch([(0, 1)], num_groups)), activation_run)


@dataclass(frozen=True)
class StepRows:
    """The rows of one step.

    Args:
        tokens: all of its positions.
        logits: those that need logits.
    """

    tokens: ForwardBatch
    logits: ForwardBatch

    @classmethod
    def of_sequence(cls, start: int, num_tokens: int, num_groups: int) -> StepRows:
        """One sequence of positions `start` .. `start + num_tokens - 1`; the last needs logits."""
        return cls(
            planned_batch([(start, num_tokens)], num_groups),
            planned_batch([(start + num_tokens - 1, 1)], num_groups),
        )


def plan_costs(
    plan: Plan[NativeWeight], ops: HeaderOps, spec: KVCacheSpec, rows: StepRows
) -> list[list[list[Cost]]]:
    """What one step takes: per stage, per operation, and of a linear per weight.

    Taking rows and quantizing them move activations only, which are counted where they are used.

    Args:
        plan: of a model bound to `ops`.
        ops: has the weights' sizes.
        spec: the KV groups.
        rows: the step.
    """
    counter = _Counter(plan, ops, spec, rows)
    return [[counter.parts(op, stage.rows) for op in stage.ops] for stage in plan.stages]


class _Counter:
    """Plays the operations of a plan to a `CostOps`, and says what each added."""

    def __init__(
        self, plan: Plan[NativeWeight], ops: HeaderOps, spec: KVCacheSpec, rows: StepRows
    ) -> None:
        self._plan, self._cost, self._weights = plan, ops.cost, ops.cost_weights
        self._batches: dict[Rows, ForwardBatch] = {"tokens": rows.tokens, "logits": rows.logits}
        self._kv = self._cost.new_kv_pool(spec, 0)
        self._cost.begin_step(rows.tokens, self._kv)
        self._before = Cost()

    def parts(self, op: record.Op[NativeWeight], rows: Rows) -> list[Cost]:
        """The cost of one operation; of a linear, that of each weight."""
        if not isinstance(op, record.Linear):
            self._play(op, self._batches[rows])
            return [self._added()]
        found = []
        for weight, bias in zip(op.weights, op.biases, strict=True):
            twin = None if bias is None else self._twin(bias)
            self._cost.linear(self._shape(op.x), self._twin(weight), twin)
            found.append(self._added())
        return found

    def _play(self, op: record.Op[NativeWeight], batch: ForwardBatch) -> None:
        cost, shape = self._cost, self._shape
        match op:
            case record.Embedding(weight, scale):
                cost.embedding(self._twin(weight), batch, scale)
            case record.Add(a, b):
                cost.add(shape(a), shape(b))
            case record.Norm(x, weight, eps):
                cost.rms_norm(shape(x), self._twin(weight), eps)
            case record.Rope(x, spec):
                cost.rope(shape(x), batch, spec)
            case record.StoreKV(k, v, attention):
                cost.store_kv(shape(k), shape(v), batch, self._kv, attention)
            case record.Attention(q, attention):
                cost.paged_attention(shape(q), batch, self._kv, attention)
            case record.Activate(kind, gate, up):
                activate = cost.silu_mul if kind == "silu" else cost.gelu_mul
                activate(shape(gate), shape(up))
            case record.Softcap(x, cap):
                cost.softcap(shape(x), cap)

    def _shape(self, value: record.Value) -> Shape:
        return Shape(self._batches[self._plan.rows[value]].num_tokens, self._plan.widths[value])

    def _twin(self, weight: NativeWeight) -> CostWeight:
        return self._weights[weight.index]

    def _added(self) -> Cost:
        before, self._before = self._before, self._cost.cost.total
        names = (field.name for field in fields(Cost))
        return Cost(**{name: getattr(self._before, name) - getattr(before, name) for name in names})
