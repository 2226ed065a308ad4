"""What the cases ask of the machine, by the model's own count: bytes of a step, multiply-adds.

Not here: how fast the machine is (machine) and how long the cases took (measure).
"""

from __future__ import annotations

from dataclasses import dataclass

from firstword.bench.cases import Case
from firstword.kvcache.spec import KVCacheSpec
from firstword.models.registry import build_model
from firstword.ops.cost import CostOps, planned_batch, step_cost
from firstword.weights.checkpoint import Checkpoint


@dataclass(frozen=True)
class Work:
    """What a step, or the reading of a prompt in one step, takes.

    Args:
        num_bytes: weights, keys and values read; activations stay in caches.
        linear_macs: multiply-adds with weights.
        attention_macs: multiply-adds with keys and values.
    """

    num_bytes: int
    linear_macs: float
    attention_macs: float

    @property
    def macs(self) -> float:
        """All multiply-adds."""
        return self.linear_macs + self.attention_macs


class WorkCounter:
    """Counts the work of cases for one model.

    Args:
        checkpoint: the model.
        spec: its KV groups.
    """

    def __init__(self, checkpoint: Checkpoint, spec: KVCacheSpec) -> None:
        self._ops = CostOps()
        self._model = build_model(checkpoint, self._ops, spec)
        self._num_groups = len(spec.groups)
        self._kv = self._ops.new_kv_pool(spec, 1)

    def prefill(self, case: Case) -> Work:
        """Reading the case's prompts, as if in one step: a shorter one reads the weights again."""
        return self._count([(case.depth, case.num_tokens)] * case.batch)

    def decode_step(self, case: Case) -> Work:
        """One step in the middle of the case's answers."""
        middle = max(case.depth, 1) + case.num_tokens // 2
        return self._count([(middle, 1)] * case.batch)

    def _count(self, spans: list[tuple[int, int]]) -> Work:
        batch = planned_batch(spans, self._num_groups)
        kinds = step_cost(self._ops, self._model, batch, self._kv).by_kind
        num_bytes = sum(cost.weight_bytes + cost.kv_bytes_read for cost in kinds.values())
        return Work(num_bytes, kinds["linear"].flops / 2, kinds["attention"].flops / 2)
