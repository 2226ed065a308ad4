from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from firstword.errors import UnsupportedModelError
from firstword.models.registry import build_model, model_kv_spec
from firstword.ops import record
from firstword.ops.cost import Cost, CostOps, planned_batch, step_cost
from firstword.ops.native import NativeOps, NativeWeight, activation_run
from firstword.ops.native_cost import HeaderOps, StepRows, plan_costs
from firstword.ops.passes import Plan, make_plan
from firstword.quant import GGMLType, RawTensor
from firstword.weights.checkpoint import Checkpoint, open_checkpoint
from tests.ops.builders import random_tensor
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

WRITERS = {"llama": write_tiny_llama, "gemma3": write_tiny_gemma3}


@pytest.fixture(params=WRITERS)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    write: Callable[..., Path] = WRITERS[request.param]
    return open_checkpoint(write(tmp_path / "m.gguf", dtype=GGMLType.Q8_0))


def planned(checkpoint: Checkpoint) -> tuple[Plan[NativeWeight], HeaderOps]:
    ops, spec = HeaderOps(), model_kv_spec(checkpoint.config)
    return ops.plan(build_model(checkpoint, ops, spec), len(spec.groups)), ops


def total_of_plan(checkpoint: Checkpoint, rows: StepRows) -> Cost:
    plan, ops = planned(checkpoint)
    costs = plan_costs(plan, ops, model_kv_spec(checkpoint.config), rows)
    return sum((cost for stage in costs for op in stage for cost in op), Cost())


def total_of_model(checkpoint: Checkpoint, start: int, num_tokens: int) -> Cost:
    ops, spec = CostOps(), model_kv_spec(checkpoint.config)
    model = build_model(checkpoint, ops, spec)
    batch = planned_batch([(start, num_tokens)], len(spec.groups))
    return step_cost(ops, model, batch, ops.new_kv_pool(spec, 0)).total


EQUAL = ("flops", "weight_bytes", "kv_bytes_read", "kv_bytes_written", "attended")


@pytest.mark.parametrize("start", [0, 70])
def test_a_decode_step_takes_what_the_model_says(checkpoint: Checkpoint, start: int) -> None:
    groups = len(model_kv_spec(checkpoint.config).groups)
    ours = total_of_plan(checkpoint, StepRows.of_sequence(start, 1, groups))
    theirs = total_of_model(checkpoint, start, 1)
    for name in EQUAL:
        assert getattr(ours, name) == getattr(theirs, name) > 0, name


def test_a_prompt_whose_rows_all_need_logits_takes_what_the_model_says(
    checkpoint: Checkpoint,
) -> None:
    """Then nothing is narrowed; the model itself takes the head for the last row alone."""
    config, count = checkpoint.config, 100
    batch = planned_batch([(0, count)], len(model_kv_spec(config).groups))
    ours = total_of_plan(checkpoint, StepRows(batch, batch))
    theirs = total_of_model(checkpoint, 0, count)
    head = 2 * config.vocab_size * config.hidden_size
    if config.final_logit_softcapping:
        head += 3 * config.vocab_size
    assert ours.flops == theirs.flops + (count - 1) * head
    for name in EQUAL[1:]:
        assert getattr(ours, name) == getattr(theirs, name) > 0, name


def test_a_prompt_that_needs_one_row_of_logits_takes_less(checkpoint: Checkpoint) -> None:
    groups = len(model_kv_spec(checkpoint.config).groups)
    ours = total_of_plan(checkpoint, StepRows.of_sequence(0, 100, groups))
    theirs = total_of_model(checkpoint, 0, 100)
    last_mlp = 6 * checkpoint.config.intermediate_size * checkpoint.config.hidden_size
    assert theirs.flops - ours.flops > 99 * last_mlp
    assert ours.weight_bytes == theirs.weight_bytes
    assert ours.kv_bytes_written == theirs.kv_bytes_written


def test_the_plan_is_the_one_that_runs(checkpoint: Checkpoint) -> None:
    """Weights differ by their index alone."""
    spec = model_kv_spec(checkpoint.config)
    ops = NativeOps()
    recording = ops.record(
        build_model(checkpoint, ops, spec), planned_batch([(0, 1)], len(spec.groups))
    )
    runs, (listed, _) = make_plan(recording, activation_run), planned(checkpoint)
    assert listed.buffers == runs.buffers
    assert listed.places == runs.places
    assert listed.quantized == runs.quantized
    assert weights_of(listed) == weights_of(runs)


def weights_of(plan: Plan[NativeWeight]) -> list[tuple[tuple[int, ...], GGMLType]]:
    linears = (op for s in plan.stages for op in s.ops if isinstance(op, record.Linear))
    return [(weight.shape, weight.type) for op in linears for weight in op.weights]


def test_tensors_of_a_linear_are_stacked() -> None:
    ops = HeaderOps()
    parts = [random_tensor(GGMLType.Q4_0, (n, 64), name=f"w{n}") for n in (3, 5)]
    weight = ops.prepare("linear", parts)
    assert (weight.shape, weight.type) == ((8, 64), GGMLType.Q4_0)
    assert ops.cost_weights[weight.index].nbytes == 8 * 64 * 18 // 32


def test_a_type_that_is_not_built_is_refused_with_a_way_out() -> None:
    tensor = RawTensor("w", (4, 256), GGMLType.IQ2_XS, np.zeros(4 * 74, np.uint8))
    with pytest.raises(UnsupportedModelError, match=r"type IQ2_XS is not built: choose.*Q4_K"):
        HeaderOps().prepare("linear", [tensor])
