"""What the cases ask of the machine, by the model's own count: bytes of a step, multiply-adds.

Not here: how fast the machine is (machine) and how long the cases took (measure).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firstword.bench.cases import Case
from firstword.kvcache.spec import KVCacheSpec
from firstword.models.registry import build_model
from firstword.ops.cost import CostOps, CostWeight, Shape, planned_batch, step_cost
from firstword.ops.native_peak import NARROW_TYPES
from firstword.ops.protocol import WeightRole
from firstword.quant import RawTensor
from firstword.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class Work:
    """What a step, or the reading of a prompt in one step, takes.

    Args:
        num_bytes: weights, keys and values read; activations stay in caches.
        linear_macs: multiply-adds with weights.
        attention_macs: multiply-adds with keys and values.
        narrow_macs: those of `linear_macs` whose weights have codes of at most 5 bits.
    """

    num_bytes: int
    linear_macs: float
    attention_macs: float
    narrow_macs: float

    @property
    def macs(self) -> float:
        """All multiply-adds."""
        return self.linear_macs + self.attention_macs


class _TypedCostOps(CostOps):
    """Also counts the multiply-adds with narrow weights."""

    def __init__(self) -> None:
        super().__init__()
        self._narrow: set[CostWeight] = set()
        self.narrow_macs = 0

    def prepare(self, role: WeightRole, tensors: Sequence[RawTensor]) -> CostWeight:
        """Note the tensors and whether their codes are narrow."""
        weight = super().prepare(role, tensors)
        if tensors[0].type in NARROW_TYPES:
            self._narrow.add(weight)
        return weight

    def linear(self, x: Shape, weight: CostWeight, bias: CostWeight | None = None) -> Shape:
        """x [T, D] times the transpose of weight [O, D], plus bias [O] -> [T, O]."""
        if weight in self._narrow:
            self.narrow_macs += x.rows * weight.rows * weight.cols
        return super().linear(x, weight, bias)


class WorkCounter:
    """Counts the work of cases for one model.

    Args:
        checkpoint: the model.
        spec: its KV groups.
    """

    def __init__(self, checkpoint: Checkpoint, spec: KVCacheSpec) -> None:
        self._ops = _TypedCostOps()
        self._model = build_model(checkpoint, self._ops, spec)
        self._num_groups = len(spec.groups)
        self._kv = self._ops.new_kv_pool(spec, 1)

    @property
    def weight_bytes(self) -> int:
        """Of all weights, as the compiled kernels keep them."""
        return self._ops.total_memory_bytes

    def prefill(self, case: Case) -> Work:
        """Reading the case's prompts, as if in one step: a shorter one reads the weights again."""
        return self._count([(case.depth, case.num_tokens)] * case.batch)

    def decode_step(self, case: Case) -> Work:
        """One step in the middle of the case's answers."""
        middle = max(case.depth, 1) + case.num_tokens // 2
        return self._count([(middle, 1)] * case.batch)

    def _count(self, spans: list[tuple[int, int]]) -> Work:
        batch = planned_batch(spans, self._num_groups)
        self._ops.narrow_macs = 0
        kinds = step_cost(self._ops, self._model, batch, self._kv).by_kind
        num_bytes = sum(cost.weight_bytes + cost.kv_bytes_read for cost in kinds.values())
        linear, attention = (kinds[kind].flops / 2 for kind in ("linear", "attention"))
        return Work(num_bytes, linear, attention, self._ops.narrow_macs)
