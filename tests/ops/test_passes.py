"""The passes on small networks whose weights are strings; a weight's name says what it wants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firstword.ops.passes import (
    Plan,
    Program,
    Stage,
    add_quantization,
    group_stages,
    make_plan,
    merge_linears,
    narrow_rows,
)
from firstword.ops.protocol import RopeSpec
from firstword.ops.record import (
    Activate,
    Add,
    Attention,
    Embedding,
    Linear,
    Norm,
    Op,
    Quantize,
    Recorder,
    Recording,
    Rope,
    StoreKV,
    Symbol,
    Take,
    inputs,
    outputs,
)
from tests.ops.builders import attention_spec, tokens_batch

SPEC = attention_spec()
ROPE = RopeSpec((1.0, 0.5))
BATCH = tokens_batch([1])


def run_of(weight: str) -> int:
    """w32... wants runs of 32, w256... of 256, w... none."""
    return {"w3": 32, "w2": 256}.get(weight[:2], 0)


def layer(r: Recorder[str], x: Symbol, residual: Symbol | None, w: str) -> tuple[Symbol, Symbol]:
    """A decoder layer in miniature."""
    total = x if residual is None else r.add(x, residual)
    x = r.norm(total, "norm", 1e-5)
    q, k, v = (
        r.linear(x, f"{w}-{name}", None, width) for name, width in (("q", 8), ("k", 4), ("v", 4))
    )
    r.store_kv(r.rope(k, ROPE), v, SPEC)
    x = r.linear(r.attention(r.rope(q, ROPE), SPEC), f"{w}-o", None, 6)
    total = r.add(x, total)
    x = r.norm(total, "norm", 1e-5)
    gate, up = r.linear(x, f"{w}-gate", None, 10), r.linear(x, f"{w}-up", None, 10)
    return r.linear(r.activate("silu", gate, up), f"{w}-down", None, 6), total


def network(num_layers: int = 2, w: str = "w32") -> Recording[str]:
    r: Recorder[str] = Recorder()
    x, residual = r.embedding("embed", 6, 1.0), None
    for _ in range(num_layers):
        x, residual = layer(r, x, residual, w)
    assert residual is not None
    x = r.norm(r.add(x, residual), "norm", 1e-5)
    return r.finish(r.linear(r.take(x, BATCH), f"{w}-head", None, 20))


def linears(ops: tuple[Op[str], ...]) -> list[tuple[str, ...]]:
    return [op.weights for op in ops if isinstance(op, Linear)]


def all_ops(plan: Plan[str]) -> Iterator[tuple[int, Stage[str], Op[str]]]:
    for index, stage in enumerate(plan.stages):
        for op in stage.ops:
            yield index, stage, op


def test_after_the_last_keys_and_values_only_logits_rows_are_computed() -> None:
    program = narrow_rows(network(2))
    on_logits = {
        w
        for op in program.ops
        if program.rows_of(op) == "logits" and isinstance(op, Linear)
        for w in op.weights
    }
    names = [w for weights in linears(program.ops) for w in weights]
    last = names[7:]  # of the second layer, and the head
    assert on_logits == {"w32-q", "w32-o", "w32-gate", "w32-up", "w32-down", "w32-head"}
    rows = [program.rows_of(op) for op in program.ops if isinstance(op, Linear)]
    assert rows[:7] == ["tokens"] * 7
    assert dict(zip(last, rows[7:], strict=True))["w32-k"] == "tokens"
    assert [program.rows_of(op) for op in program.ops if isinstance(op, Attention)] == [
        "tokens",
        "logits",
    ]


def test_values_of_all_rows_are_taken_once_where_the_logits_need_them() -> None:
    program = narrow_rows(network(2))
    taken = [op for op in program.ops if isinstance(op, Take)]
    assert len(taken) == 2  # the last layer's normed input, and the stream
    assert len({op.x for op in taken}) == 2
    for op in taken:
        assert (program.rows[op.x], program.rows[op.out]) == ("tokens", "logits")
        assert program.widths[op.x] == program.widths[op.out]


def test_no_operation_mixes_rows() -> None:
    program = narrow_rows(network(3))
    for op in program.ops:
        if not isinstance(op, Take | Embedding):
            assert {program.rows[value] for value in inputs(op)} == {program.rows_of(op)}


def test_without_fusion_every_recorded_operation_has_a_stage_of_its_own() -> None:
    recording = network(2)
    plan = make_plan(recording, run_of, fused=False)
    assert all(len(stage.ops) == 1 for stage in plan.stages)
    ops = [op for _, _, op in all_ops(plan)]
    assert tuple(op for op in ops if not isinstance(op, Quantize)) == recording.ops
    (taken,) = (index for index, op in enumerate(ops) if isinstance(op, Take))
    narrow = [stage.rows == "logits" for stage in plan.stages]
    assert narrow == [index >= taken for index in range(len(ops))]


def test_an_embedding_is_of_all_rows_and_a_take_may_be_the_result() -> None:
    r: Recorder[str] = Recorder()
    x = r.embedding("embed", 6, 1.0)
    program = narrow_rows(r.finish(r.take(x, BATCH)))
    assert program.ops == (Embedding("embed", 1.0, 0), Take(0, 2))
    assert program.result == 2


def test_linears_of_one_input_become_one() -> None:
    program = merge_linears(narrow_rows(network(2)))
    assert linears(program.ops) == [
        ("w32-q", "w32-k", "w32-v"),
        ("w32-o",),
        ("w32-gate", "w32-up"),
        ("w32-down",),
        ("w32-q",),  # of the logits rows alone
        ("w32-k", "w32-v"),
        ("w32-o",),
        ("w32-gate", "w32-up"),
        ("w32-down",),
        ("w32-head",),
    ]


def test_more_than_three_linears_become_several_and_biases_stay_with_theirs() -> None:
    r: Recorder[str] = Recorder()
    x = r.embedding("embed", 6, 1.0)
    outs = [r.linear(x, f"w{i}", f"b{i}" if i % 2 else None, 4) for i in range(5)]
    program = merge_linears(Program(tuple(r.ops), tuple(r.widths), ("tokens",) * 6, outs[-1].value))
    assert program.ops[1:] == (
        Linear(0, ("w0", "w1", "w2"), (None, "b1", None), (1, 2, 3)),
        Linear(0, ("w3", "w4"), ("b3", None), (4, 5)),
    )


def test_inputs_are_quantized_where_they_are_made_and_as_their_weights_want() -> None:
    r: Recorder[str] = Recorder()
    x = r.embedding("embed", 256, 1.0)
    r.linear(x, "w32", None, 4)
    r.linear(x, "w256", None, 4)
    y = r.linear(x, "w", None, 4)
    program = Program(tuple(r.ops), tuple(r.widths), ("tokens",) * 4, y.value)
    ops = add_quantization(merge_linears(program), run_of).ops
    assert ops[:3] == (Embedding("embed", 1.0, 0), Quantize(0, 32), Quantize(0, 256))
    assert not [
        op
        for op in add_quantization(narrow_rows(network(1, "w")), run_of).ops
        if isinstance(op, Quantize)
    ]


def test_row_operations_share_stages_and_everything_else_stands_alone() -> None:
    plan = make_plan(network(3), run_of)
    assert [stage.kind for stage in plan.stages[:6]] == [
        "rows",  # embedding, norm, quantize
        "linear",  # q, k, v
        "rows",  # rope, store
        "attention",
        "rows",  # quantize
        "linear",  # o
    ]
    for stage in plan.stages:
        assert stage.kind == "rows" or len(stage.ops) == 1


@pytest.mark.parametrize("w", ["w", "w32", "w256"])
def test_stages_wait_for_what_they_read(w: str) -> None:
    plan = make_plan(network(3, w), run_of)
    made: dict[int, tuple[int, Stage[str]]] = {}
    seen: list[Op[str]] = []
    stores: list[int] = []
    for index, stage, op in all_ops(plan):
        for value in inputs(op):
            at, maker = made[value]
            shared = at == index and maker.rows == stage.rows and stage.kind == "rows"
            assert at < index or (shared and not isinstance(op, Take)), op
        if isinstance(op, StoreKV):
            stores.append(index)
        if isinstance(op, Attention):
            assert stores and max(stores) < index
        for value in outputs(op):
            made[value] = (index, stage)
        seen.append(op)
    assert len(stores) == 3


@pytest.mark.parametrize("w", ["w", "w32", "w256"])
def test_no_buffer_is_overwritten_while_it_is_needed(w: str) -> None:
    """Runs the plan on buffers that remember whose value they hold."""
    plan = make_plan(network(4, w), run_of)
    held: dict[int, object] = {}
    for _, stage in enumerate(plan.stages):
        written: dict[int, object] = {}
        for op in stage.ops:
            only_forms = isinstance(op, Linear) and 0 not in {run_of(w) for w in op.weights}
            for value in () if only_forms else inputs(op):
                place = plan.places[value]
                assert {**held, **written}[place] == value, (op, value)
            if isinstance(op, Linear):
                for run in {run_of(weight) for weight in op.weights} - {0}:
                    assert held[plan.quantized[op.x, run]] == (op.x, run)
            if isinstance(op, Quantize):
                written[plan.quantized[op.x, op.run]] = (op.x, op.run)
            for value in outputs(op):
                place = plan.places[value]
                in_place = isinstance(op, Rope) and place == plan.places[op.x]
                assert in_place or place not in written, "two values of one stage in one place"
                written[place] = value
        held.update(written)
    assert held[plan.places[plan.result]] == plan.result


def test_buffers_are_shared_and_wide_enough_and_of_the_right_rows() -> None:
    plan = make_plan(network(12), run_of)
    assert len(plan.buffers) == len(make_plan(network(4), run_of).buffers) <= 24
    for value, place in enumerate(plan.places):
        if place >= 0:
            assert plan.buffers[place].width >= plan.widths[value]
            assert plan.buffers[place].rows in (plan.rows[value], "threads")
            assert plan.buffers[place].run == 0
    for (value, run), place in plan.quantized.items():
        assert plan.buffers[place].run == run
        assert plan.buffers[place].width >= plan.widths[value]


@pytest.mark.parametrize(("w", "is_brief"), [("w", False), ("w32", True), ("w256", True)])
def test_values_that_are_read_in_8_bits_alone_have_a_row_per_thread(w: str, is_brief: bool) -> None:
    plan = make_plan(network(4, w), run_of)
    taken = {op.x for _, _, op in all_ops(plan) if isinstance(op, Take)}
    for _, _, op in all_ops(plan):
        if isinstance(op, Norm | Activate) and op.out not in taken:
            assert (plan.buffers[plan.places[op.out]].rows == "threads") == is_brief, op


def test_a_value_that_others_read_is_not_overwritten_in_place() -> None:
    r: Recorder[str] = Recorder()
    x = r.embedding("embed", 4, 1.0)
    rotated = r.rope(x, ROPE)
    r.store_kv(rotated, x, SPEC)
    plan = make_plan(r.finish(r.take(x, BATCH)), run_of)
    assert plan.places[x.value] != plan.places[rotated.value]


def test_independent_row_operations_join_an_earlier_stage() -> None:
    """The last layer's queries are few rows, its keys all: their stages are not torn apart."""
    plan = make_plan(network(2), run_of)
    rotations = [
        (stage.rows, len([o for o in stage.ops if isinstance(o, Rope)])) for stage in plan.stages
    ]
    assert [r for r in rotations if r[1]] == [("tokens", 2), ("tokens", 1), ("logits", 1)]
    assert [op for _, _, op in all_ops(plan) if isinstance(op, Norm | Add | Activate)]


def test_a_plan_is_a_function_of_the_recording() -> None:
    assert make_plan(network(2), run_of) == make_plan(network(2), run_of)
    assert make_plan(network(2), run_of) != make_plan(network(3), run_of)
    assert group_stages(narrow_rows(network(1))) != ()
