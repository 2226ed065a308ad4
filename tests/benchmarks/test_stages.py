"""Stages added up and set against a peak; timing itself is tried on a real plan elsewhere."""

from __future__ import annotations

from benchmarks.stages import add_up, table
from firstword.ops import record
from firstword.ops.cost import Cost
from firstword.ops.native import NativeWeight
from firstword.ops.passes import Plan, Stage
from firstword.quant import GGMLType

GATE, UP = (
    NativeWeight((64, 32), kind, i) for i, kind in enumerate((GGMLType.Q4_1, GGMLType.Q8_0))
)
WIDTHS = (32, 64, 64, 64)


def linear() -> Stage[NativeWeight]:
    return Stage("linear", "tokens", (record.Linear(0, (GATE, UP), (None, None), (1, 2)),))


def plan() -> Plan[NativeWeight]:
    activate: Stage[NativeWeight] = Stage(
        "rows", "logits", (record.Activate("silu", 1, 2, 3), record.Quantize(3, 32))
    )
    stages = (linear(), activate, linear())
    return Plan(stages, WIDTHS, ("tokens",) * 4, (), (-1,) * 4, {}, 3)


def test_stages_alike_are_added_up_and_the_slowest_comes_first() -> None:
    costs = [Cost(flops=4000, weight_bytes=500), Cost(flops=10), Cost(flops=4000, weight_bytes=500)]
    kinds = add_up(plan(), [30.0, 100.0, 50.0], costs)
    assert list(kinds) == ["activate, quantize *", "linear 64+64 x 32 Q4_1+Q8_0"]
    both = kinds["linear 64+64 x 32 Q4_1+Q8_0"]
    assert (both.count, both.ns, both.cost.flops, both.cost.weight_bytes) == (2, 80.0, 8000, 1000)


def test_a_decode_step_is_set_against_reading_and_a_prompt_against_multiplying() -> None:
    cost = Cost(flops=4000, weight_bytes=400, kv_bytes_read=100)
    kinds = add_up(plan(), [100.0, 0.0, 100.0], [cost, Cost(), cost])
    read = list(table(kinds, decode=True, peak=10.0))
    assert read[1].split()[:5] == ["0.2", "100.0%", "2", "5.0", "50%"]
    multiplied = list(table(kinds, decode=False, peak=80.0))
    assert multiplied[1].split()[:5] == ["0.2", "100.0%", "2", "20.0", "25%"]
    assert read[2].split()[3] == "0.0", "a stage without time has no rate"
