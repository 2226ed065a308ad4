from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.batch import CopySpan, ForwardBatch
from firstword.errors import UnsupportedModelError
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.ops.cost import (
    Cost,
    CostOps,
    CostPool,
    CostWeight,
    Shape,
    StepCost,
    num_attended,
    planned_batch,
    step_cost,
)
from firstword.ops.protocol import AttentionSpec, Ops, RopeSpec
from firstword.quant import GGMLType, RawTensor

V, D, H, K, HEAD, INTER, WINDOW = 320, 64, 4, 2, 16, 96, 48
SPEC = KVCacheSpec(
    (
        KVGroup("full", "full", (0,), K, HEAD),
        KVGroup("near", "sliding", (1,), K, HEAD, "float16", "float32", window=WINDOW),
    )
)
Q4_1 = 20 / 32  # bytes per weight
Q8_0 = 34 / 32
LINEAR = D * (H + 2 * K) * HEAD + H * HEAD * D + 3 * D * INTER  # weights of one layer
NORMS = 5 * D * 4  # bytes of two norms per layer and the last one


def tensor(name: str, *shape: int, ggml_type: GGMLType = GGMLType.F32) -> RawTensor:
    """A tensor without data: touching it would fail."""
    return RawTensor(name, shape, ggml_type, np.zeros(0, dtype=np.uint8))


class ToyModel:
    """Two layers with a gated MLP and a tied head, straight on the protocol."""

    def __init__(self, ops: CostOps) -> None:
        self.ops = ops
        self.embedding = ops.prepare("embedding", [tensor("emb", V, D, ggml_type=GGMLType.Q8_0)])
        self.layers = [self._layer(i) for i in range(2)]
        self.norm = ops.prepare("vector", [tensor("norm", D)])

    def _layer(self, index: int) -> dict[str, CostWeight]:
        shapes = {
            "qkv": [(H * HEAD, D), (K * HEAD, D), (K * HEAD, D)],
            "o": [(D, H * HEAD)],
            "gate": [(INTER, D)],
            "up": [(INTER, D)],
            "down": [(D, INTER)],
        }
        layer = {
            name: self.ops.prepare(
                "linear",
                [
                    tensor(f"{index}.{name}.{i}", *shape, ggml_type=GGMLType.Q4_1)
                    for i, shape in enumerate(parts)
                ],
            )
            for name, parts in shapes.items()
        }
        for name in ("norm1", "norm2"):
            layer[name] = self.ops.prepare("vector", [tensor(f"{index}.{name}", D)])
        return layer

    def __call__(self, batch: ForwardBatch, kv: CostPool) -> Shape:
        ops = self.ops
        x, residual = ops.embedding(self.embedding, batch), None
        for index, layer in enumerate(self.layers):
            spec = AttentionSpec(index, index, 0, H, K, HEAD, 0.25, SPEC.groups[index].window)
            x, residual = ops.add_rms_norm(x, residual, layer["norm1"], 1e-5)
            qkv = ops.linear(x, layer["qkv"])
            assert qkv == Shape(batch.num_tokens, (H + 2 * K) * HEAD)
            q, k = Shape(qkv.rows, H * HEAD), Shape(qkv.rows, K * HEAD)
            q, k = (ops.rope(t, batch, RopeSpec((1.0,) * 8)) for t in (q, k))
            ops.store_kv(k, k, batch, kv, spec)
            x = ops.linear(ops.paged_attention(q, batch, kv, spec), layer["o"])
            x, residual = ops.add_rms_norm(x, residual, layer["norm2"], 1e-5)
            gated = ops.silu_mul(ops.linear(x, layer["gate"]), ops.linear(x, layer["up"]))
            x = ops.linear(gated, layer["down"])
        x, _ = ops.add_rms_norm(ops.take(x, batch), ops.take(x, batch), self.norm, 1e-5)
        return ops.linear(x, self.embedding)


def toy_cost(*spans: tuple[int, int]) -> StepCost:
    ops = CostOps()
    model = ToyModel(ops)
    return step_cost(ops, model, planned_batch(spans, 2), ops.new_kv_pool(SPEC, 8))


def test_is_an_ops_backend() -> None:
    backend: Ops[Shape, CostWeight] = CostOps()
    assert backend is not None


def test_parameters_and_bytes_of_the_weights() -> None:
    ops = CostOps()
    ToyModel(ops)
    assert ops.num_parameters == V * D + 2 * LINEAR + 5 * D
    assert ops.total_weight_bytes == V * D * Q8_0 + 2 * LINEAR * Q4_1 + NORMS


def test_weights_count_as_they_lie_in_panels() -> None:
    ops = CostOps()
    raw = tensor("w", 32, 64, ggml_type=GGMLType.IQ4_NL)
    weight = ops.prepare("linear", [raw])
    assert ops.total_weight_bytes == raw.nbytes == 32 * 2 * 18
    assert ops.total_memory_bytes == weight.nbytes == 32 * 2 * 34


def test_a_prompt() -> None:
    cost = toy_cost((0, 100))
    rows_of_the_window = 48 * 49 // 2 + 52 * 48
    linear = cost.by_kind["linear"]
    assert linear.flops == 2 * 100 * 2 * LINEAR + 2 * V * D
    assert linear.weight_bytes == 2 * LINEAR * Q4_1 + V * D * Q8_0
    attention = cost.by_kind["attention"]
    assert attention.attended == 100 * 101 // 2 + rows_of_the_window
    assert attention.flops == 4 * HEAD * H * attention.attended
    assert attention.kv_bytes_written == 100 * K * HEAD * (4 + 6)
    assert attention.kv_bytes_read == 100 * K * HEAD * (4 + 6)
    assert cost.by_kind["norm"].weight_bytes == NORMS
    assert cost.by_kind["other"].weight_bytes == 100 * D * Q8_0


def test_a_decode_step_reads_the_same_weights() -> None:
    cost = toy_cost((200, 1))
    assert cost.by_kind["linear"].flops == 2 * (2 * LINEAR + V * D)
    assert cost.by_kind["linear"].weight_bytes == toy_cost((0, 100)).by_kind["linear"].weight_bytes
    attention = cost.by_kind["attention"]
    assert attention.attended == 201 + WINDOW
    assert attention.kv_bytes_read == K * HEAD * (201 * 4 + WINDOW * 6)
    assert attention.kv_bytes_written == K * HEAD * (4 + 6)


def test_a_chunk_in_the_middle_reads_its_window_and_itself() -> None:
    attention = toy_cost((100, 32)).by_kind["attention"]
    assert attention.kv_bytes_read == K * HEAD * (132 * 4 + (WINDOW - 1 + 32) * 6)
    assert attention.attended == num_attended(100, 32) + 32 * WINDOW


def test_sequences_share_the_weights_and_nothing_else() -> None:
    alone = [toy_cost(span).total for span in [(0, 10), (50, 1), (7, 3)]]
    together = toy_cost((0, 10), (50, 1), (7, 3)).total
    for name in ("flops", "attended", "kv_bytes_read", "kv_bytes_written"):
        assert getattr(together, name) == sum(getattr(c, name) for c in alone), name
    matrices = toy_cost((0, 1)).by_kind["linear"].weight_bytes
    assert together.weight_bytes == matrices + NORMS + 14 * D * Q8_0


def test_activations_of_a_linear() -> None:
    ops = CostOps()
    weight = ops.prepare("linear", [tensor("w", 24, 32)])
    bias = ops.prepare("vector", [tensor("b", 24)])
    ops.linear(Shape(5, 32), weight, bias)
    assert ops.cost.total == Cost(
        flops=2 * 5 * 24 * 32 + 5 * 24,
        weight_bytes=24 * 32 * 4 + 24 * 4,
        activation_bytes_read=5 * 32 * 4,
        activation_bytes_written=5 * 24 * 4,
    )


def test_elementwise_operations() -> None:
    ops, x, batch = CostOps(), Shape(5, 24), planned_batch([(0, 5)], 1)
    assert ops.gelu_mul(x, x) == ops.silu_mul(x, x) == ops.softcap(x, 2.0) == x
    assert ops.cost.total == Cost(
        flops=(9 + 5 + 3) * 120, activation_bytes_read=5 * 480, activation_bytes_written=3 * 480
    )
    ops.begin_step(batch, CostPool(SPEC, 1))
    weight = ops.prepare("embedding", [tensor("e", 8, 24)])
    assert ops.embedding(weight, batch, scale=2.0) == x
    assert ops.cost.total.flops == 120


def test_a_sum_and_the_norm_behind_it_are_one_pass() -> None:
    apart, together, x = CostOps(), CostOps(), Shape(5, 24)
    weights = [ops.prepare("vector", [tensor("n", 24)]) for ops in (apart, together)]
    assert apart.add(x, x) == x
    assert apart.cost.total == Cost(
        flops=120, activation_bytes_read=480, activation_bytes_written=480
    )
    apart.rms_norm(x, weights[0], 1e-5)
    together.add_rms_norm(x, x, weights[1], 1e-5)
    assert apart.cost == together.cost


def test_read_and_written_add_up() -> None:
    total = toy_cost((0, 9), (20, 1)).total
    assert total.bytes_read == (
        total.weight_bytes + total.kv_bytes_read + total.activation_bytes_read
    )
    assert total.bytes_written == total.kv_bytes_written + total.activation_bytes_written
    assert total == sum(toy_cost((0, 9), (20, 1)).by_kind.values(), Cost())


def test_every_step_starts_at_zero() -> None:
    ops = CostOps()
    model, kv = ToyModel(ops), CostPool(SPEC, 8)
    first = step_cost(ops, model, planned_batch([(0, 7)], 2), kv)
    step_cost(ops, model, planned_batch([(7, 1)], 2), kv)
    assert step_cost(ops, model, planned_batch([(0, 7)], 2), kv) == first


def test_a_kept_result_does_not_change_with_the_next_step() -> None:
    ops = CostOps()
    model, kv = ToyModel(ops), CostPool(SPEC, 8)
    first = step_cost(ops, model, planned_batch([(0, 7)], 2), kv)
    flops = first.total.flops
    step_cost(ops, model, planned_batch([(7, 100)], 2), kv)
    assert first.total.flops == flops


def test_what_one_batch_sees_is_not_taken_for_another() -> None:
    ops, kv, spec = CostOps(), CostPool(SPEC, 8), AttentionSpec(0, 0, 0, H, K, HEAD, 1.0)
    for start in (0, 9, 99):
        ops.paged_attention(Shape(1, H * HEAD), planned_batch([(start, 1)], 2), kv, spec)
    assert ops.cost.total.attended == 1 + 10 + 100


def test_a_result_asked_for_within_a_step_stays_as_it_is() -> None:
    ops = CostOps()
    ops.softcap(Shape(2, 3), 1.0)
    early = ops.cost
    ops.softcap(Shape(2, 3), 1.0)
    assert 2 * early.total.flops == ops.cost.total.flops


def test_a_weight_used_twice_in_a_step_is_read_once() -> None:
    ops = CostOps()
    weight = ops.prepare("linear", [tensor("w", 8, 8)])
    ops.linear(ops.linear(Shape(3, 8), weight), weight)
    assert ops.cost.total.weight_bytes == 8 * 8 * 4
    assert ops.cost.total.flops == 2 * 2 * 3 * 8 * 8


def test_block_copies_are_pages_read_and_written() -> None:
    ops = CostOps()
    batch = replace(planned_batch([(0, 1)], 2), block_copies=(CopySpan(0, 1, 5),) * 2)
    ops.begin_step(batch, CostPool(SPEC, 8))
    page = 32 * K * HEAD * 6
    assert ops.cost.total == Cost(kv_bytes_read=2 * page, kv_bytes_written=2 * page)


def test_padding_costs_no_keys_and_values() -> None:
    ops, kv = CostOps(), CostPool(SPEC, 8)
    batch = planned_batch([(0, 4), (0, 4)], 2)
    slots = np.array([0, 1, 2, 3, -1, -1, -1, -1], dtype=np.int32)
    batch = replace(batch, seq_lens=np.array([4, 0], np.int32), slot_mapping=(slots, slots))
    spec = AttentionSpec(0, 0, 0, H, K, HEAD, 1.0)
    ops.store_kv(Shape(8, K * HEAD), Shape(8, K * HEAD), batch, kv, spec)
    ops.paged_attention(Shape(8, H * HEAD), batch, kv, spec)
    total = ops.cost.total
    assert total.kv_bytes_written == total.kv_bytes_read == 4 * K * HEAD * 4
    assert total.attended == 10


def test_the_pool_has_a_size_and_no_content() -> None:
    ops = CostOps()
    kv = ops.new_kv_pool(SPEC, 1 << 30)
    assert kv.nbytes == (1 << 30) * SPEC.page_bytes
    ops.write_block(kv, 3, ops.read_block(kv, 0))
    assert len(ops.read_block(kv, 3)) == SPEC.page_bytes


def test_shapes_that_do_not_fit_are_our_bug() -> None:
    ops = CostOps()
    with pytest.raises(AssertionError, match="32 inputs"):
        ops.linear(Shape(5, 24), ops.prepare("linear", [tensor("w", 24, 32)]))
    with pytest.raises(AssertionError, match="differ"):
        ops.silu_mul(Shape(5, 24), Shape(5, 25))


def test_a_type_of_unknown_size_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"blk.*Q4_2"):
        CostOps().prepare("linear", [tensor("blk", 8, 32, ggml_type=GGMLType.Q4_2)])


@given(st.integers(0, 200), st.integers(0, 200), st.one_of(st.none(), st.integers(1, 250)))
def test_num_attended_counts_what_each_query_sees(
    start: int, count: int, window: int | None
) -> None:
    seen = (p + 1 if window is None else min(p + 1, window) for p in range(start, start + count))
    assert num_attended(start, count, window) == sum(seen)


def test_num_attended_of_a_thousand_positions() -> None:
    assert num_attended(0, 1000) == 500_500
    assert sum(num_attended(p, 1) for p in range(1000)) == 500_500


def test_planned_batch() -> None:
    batch = planned_batch([(0, 3), (10, 1)], 2)
    assert batch.positions.tolist() == [0, 1, 2, 10]
    assert batch.query_start_loc.tolist() == [0, 3, 4]
    assert batch.seq_lens.tolist() == [3, 11]
    assert batch.logits_indices.tolist() == [2, 3]
    assert len(batch.block_tables) == len(batch.slot_mapping) == 2
    assert planned_batch([], 1).num_tokens == 0
