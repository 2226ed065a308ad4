from dataclasses import replace
from math import erf, exp, pi, sqrt, tanh
from typing import cast

import numpy as np
import pytest

from firstword.batch import CopySpan, Float32Array
from firstword.errors import ConfigError
from firstword.kvcache.spec import KVCacheSpec, KVGroup
from firstword.ops.protocol import AttentionSpec, Ops, RopeSpec
from firstword.ops.reference import ReferenceMode, ReferenceOps
from firstword.ops.reference_weight import ReferenceWeight
from firstword.quant import DEQUANTIZABLE, GGMLType, dequantize
from tests.ops.builders import (
    Chunk,
    attention_spec,
    float_tensor,
    make_batch,
    normal,
    one_group,
    random_tensor,
    same_bits,
    tokens_batch,
)

MODES: tuple[ReferenceMode, ...] = ("blas", "exact", "int8")
INVARIANT = pytest.mark.parametrize("mode", ["exact", "int8"])
# Largest error against float64, as a share of the largest output: float32 rounding, 8-bit codes.
TOLERANCE = {"blas": 1e-6, "exact": 1e-7, "int8": 0.02}


@pytest.fixture(params=MODES)
def ops(request: pytest.FixtureRequest) -> ReferenceOps:
    return ReferenceOps(request.param)


def vector(values: Float32Array) -> ReferenceWeight:
    return ReferenceOps().prepare("vector", [float_tensor(values)])


def test_is_an_ops_backend() -> None:
    backend: Ops[Float32Array, ReferenceWeight] = ReferenceOps()
    assert backend is not None


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"mode is 'fast'.*blas, exact, int8"):
        ReferenceOps(cast(ReferenceMode, "fast"))


@pytest.mark.parametrize("ggml_type", sorted(DEQUANTIZABLE))
def test_linear(ops: ReferenceOps, ggml_type: GGMLType) -> None:
    tensor, x = random_tensor(ggml_type, (40, 512)), normal(0, 6, 512)
    exact = np.einsum("td,od->to", x.astype(np.float64), dequantize(tensor).astype(np.float64))
    out = ops.linear(x, ops.prepare("linear", [tensor]))
    assert out.dtype == np.float32
    assert np.abs(out - exact).max() <= TOLERANCE[ops.mode] * np.abs(exact).max()


def test_linear_over_stacked_tensors_is_the_parts_side_by_side(ops: ReferenceOps) -> None:
    parts = [random_tensor(t, (8, 256)) for t in (GGMLType.Q4_K, GGMLType.Q8_0, GGMLType.F16)]
    x = normal(0, 3, 256)
    out = ops.linear(x, ops.prepare("linear", parts))
    separate = [ops.linear(x, ops.prepare("linear", [part])) for part in parts]
    np.testing.assert_allclose(out, np.concatenate(separate, axis=1), atol=1e-5)


def test_linear_adds_the_bias(ops: ReferenceOps) -> None:
    weight = ops.prepare("linear", [random_tensor(GGMLType.Q8_0, (4, 32))])
    x, bias = normal(0, 3, 32), normal(1, 4)
    out = ops.linear(x, weight, vector(bias))
    np.testing.assert_allclose(out, ops.linear(x, weight) + bias, atol=1e-6)


@INVARIANT
@pytest.mark.parametrize("ggml_type", sorted(DEQUANTIZABLE))
def test_linear_rows_do_not_depend_on_their_neighbours(
    mode: ReferenceMode, ggml_type: GGMLType
) -> None:
    ops = ReferenceOps(mode)
    weight = ops.prepare("linear", [random_tensor(ggml_type, (17, 256))])
    x = normal(0, 8, 256)
    alone = [ops.linear(x[t : t + 1], weight) for t in range(8)]
    assert same_bits(ops.linear(x, weight), np.concatenate(alone))


def test_embedding_takes_rows_and_scales_them(ops: ReferenceOps) -> None:
    tensor = random_tensor(GGMLType.Q5_0, (10, 64))
    weight = ops.prepare("embedding", [tensor])
    rows = dequantize(tensor)[[3, 9, 3, 0]]
    batch = tokens_batch([3, 9, 3, 0])
    assert same_bits(ops.embedding(weight, batch), rows)
    assert same_bits(ops.embedding(weight, batch, 2.5), rows * np.float32(2.5))


def test_an_embedding_serves_as_the_head(ops: ReferenceOps) -> None:
    tensor = random_tensor(GGMLType.Q8_0, (10, 64))
    tied, head = ops.prepare("embedding", [tensor]), ops.prepare("linear", [tensor])
    assert same_bits(ops.linear(normal(0, 2, 64), tied), ops.linear(normal(0, 2, 64), head))


@pytest.mark.parametrize("token_id", [-1, 10])
def test_token_ids_outside_the_vocabulary_are_our_bug(ops: ReferenceOps, token_id: int) -> None:
    weight = ops.prepare("embedding", [random_tensor(GGMLType.Q8_0, (10, 32))])
    with pytest.raises(AssertionError, match=r"\[0, 10\)"):
        ops.embedding(weight, tokens_batch([1, token_id]))


@pytest.mark.parametrize(("width", "num_rows"), [(16, 5), (48, 1), (576, 33), (1, 4)])
def test_rms_norm(ops: ReferenceOps, width: int, num_rows: int) -> None:
    x, weight = normal(0, num_rows, 2 * width), normal(1, width)
    out = ops.rms_norm(x, vector(weight), 1e-5)
    runs = x.reshape(num_rows, 2, width).astype(np.float64)
    root = np.sqrt((runs**2).mean(axis=2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, (runs / root * weight).reshape(x.shape), rtol=3e-7)
    alone = [ops.rms_norm(x[t : t + 1], vector(weight), 1e-5) for t in range(num_rows)]
    assert same_bits(out, np.concatenate(alone))


def test_rms_norm_of_zeros_is_zero(ops: ReferenceOps) -> None:
    out = ops.rms_norm(np.zeros((2, 8), np.float32), vector(np.ones(8, np.float32)), 1e-6)
    assert not out.any()


def test_add_rms_norm(ops: ReferenceOps) -> None:
    x, residual, weight = normal(0, 3, 16), normal(1, 3, 16), vector(normal(2, 16))
    normed, total = ops.add_rms_norm(x, residual, weight, 1e-6)
    assert same_bits(total, x + residual)
    assert same_bits(normed, ops.rms_norm(x + residual, weight, 1e-6))
    normed, total = ops.add_rms_norm(x, None, weight, 1e-6)
    assert same_bits(total, x)
    assert same_bits(normed, ops.rms_norm(x, weight, 1e-6))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_rope_turns_pairs_as_complex_numbers(
    ops: ReferenceOps, interleaved: bool, factor: float
) -> None:
    inv_freq = tuple(10000.0 ** (-np.arange(4) / 4))
    spec = RopeSpec(inv_freq, interleaved, factor)
    batch = make_batch(Chunk((0, 1), 5, 12), Chunk((2,) * 4000, 100_000, 100_002))
    x = normal(0, 9, 3 * 8)
    heads = x.reshape(9, 3, 8).astype(np.float64)
    pairs = heads.reshape(9, 3, 4, 2) if interleaved else heads.reshape(9, 3, 2, 4).swapaxes(2, 3)
    numbers = pairs[..., 0] + 1j * pairs[..., 1]  # [T, H, d / 2]
    angles = batch.positions[:, None, None].astype(np.float32) * np.array(inv_freq, np.float32)
    turned = numbers * np.exp(1j * angles.astype(np.float64)) * factor
    parts = np.stack([turned.real, turned.imag], axis=3)
    expected = (parts if interleaved else parts.swapaxes(2, 3)).reshape(9, 24)
    out = ops.rope(x, batch, spec)
    np.testing.assert_allclose(out, expected, atol=1e-6)
    assert same_bits(ops.rope(x, batch, spec), out), "the kept table gives the same"


def test_rope_keeps_no_angles_of_another_batch_or_spec(ops: ReferenceOps) -> None:
    near, far = make_batch(Chunk((0,), 0, 4)), make_batch(Chunk((0,), 8, 12))
    x, specs = normal(0, 4, 8), (RopeSpec((1.0,) * 4), RopeSpec((0.5,) * 4))
    outs = [ops.rope(x, batch, spec) for batch in (near, far) for spec in specs]
    fresh = [ReferenceOps().rope(x, batch, spec) for batch in (near, far) for spec in specs]
    assert all(same_bits(a, b) for a, b in zip(outs, fresh, strict=True))
    assert not same_bits(outs[0], outs[1]) and not same_bits(outs[0], outs[2])


def test_silu_mul(ops: ReferenceOps) -> None:
    gate = np.array([[-1000.0, -20.0, -1.0, 0.0, 0.5, 20.0, 1000.0]], dtype=np.float32)
    up = np.full_like(gate, 1.5)
    silu = [0.0 if g < -700 else g / (1 + exp(-g)) for g in gate[0].astype(float)]
    np.testing.assert_allclose(ops.silu_mul(gate, up)[0], np.array(silu) * 1.5, rtol=1e-6)


def test_gelu_mul_has_the_tanh_form(ops: ReferenceOps) -> None:
    gate = np.array([[-1e20, -6.0, -1.0, 0.0, 0.5, 3.0, 1e20]], dtype=np.float32)
    up = np.full_like(gate, 1.5)
    gelu = [0.5 * g * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 * g**3))) for g in gate[0].tolist()]
    out = ops.gelu_mul(gate, up)[0]
    np.testing.assert_allclose(out, np.array(gelu) * 1.5, rtol=1e-5, atol=1e-6)
    with_erf = 0.5 * 3.0 * (1 + erf(3.0 / sqrt(2))) * 1.5
    assert abs(out[5] - with_erf) > 1e-4, "not the erf form"


def test_softcap(ops: ReferenceOps) -> None:
    x = np.array([[-1e30, -30.0, 0.0, 0.01, 1e30]], dtype=np.float32)
    expected = [30 * tanh(v / 30) for v in x[0].tolist()]
    out = ops.softcap(x, 30.0)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out[0], expected, rtol=1e-6)


@pytest.mark.parametrize("width", [1, 7, 16, 33, 257])
def test_elementwise_rows_do_not_depend_on_their_neighbours(width: int) -> None:
    """Vector code and its scalar tail must agree: a row lies elsewhere in another batch."""
    ops = ReferenceOps("exact")
    a, b = normal(0, 11, width) * np.float32(4), normal(1, 11, width)
    for function in (ops.silu_mul, ops.gelu_mul, lambda x, _: ops.softcap(x, 3.0)):
        alone = [function(a[t : t + 1], b[t : t + 1]) for t in range(11)]
        assert same_bits(function(a, b), np.concatenate(alone))


def test_take_gives_rows_in_the_order_asked(ops: ReferenceOps) -> None:
    batch = replace(make_batch(Chunk((0,), 0, 5)), logits_indices=np.array([4, 0, 4], np.int32))
    x = normal(0, 5, 3)
    assert same_bits(ops.take(x, batch), x[[4, 0, 4]])


def test_arguments_are_left_alone(ops: ReferenceOps) -> None:
    a, b = normal(0, 4, 16), normal(1, 4, 16)
    kept = a.copy(), b.copy()
    batch = make_batch(Chunk((0,), 0, 4))
    ops.rms_norm(a, vector(normal(2, 16)), 1e-5)
    ops.add_rms_norm(a, b, vector(normal(2, 16)), 1e-5)
    ops.rope(a, batch, RopeSpec((1.0,) * 4))
    ops.silu_mul(a, b)
    ops.gelu_mul(a, b)
    ops.softcap(a, 1.0)
    spec = attention_spec(2, 2, 8)
    kv = ops.new_kv_pool(one_group(2, 8), 1)
    ops.store_kv(a, b, batch, kv, spec)
    ops.paged_attention(a, batch, kv, spec)
    assert same_bits(a, kept[0]) and same_bits(b, kept[1])


def test_store_kv_writes_its_layer_at_its_slots(ops: ReferenceOps) -> None:
    spec = AttentionSpec(layer=3, group=1, index_in_group=1, num_heads=2, num_kv_heads=2,
                         head_dim=4, scale=1.0)  # fmt: skip
    groups = (KVGroup("a", "full", (0,), 2, 4), KVGroup("b", "full", (1, 3), 2, 4))
    kv = ops.new_kv_pool(KVCacheSpec(groups), 3)
    slots = np.array([2 * 32 + 5, -1, 31], dtype=np.int32)
    batch = replace(make_batch(Chunk((0,), 0, 3)), slot_mapping=(np.zeros(3, np.int32), slots))
    k, v = normal(0, 3, 8), normal(1, 3, 8)
    ops.store_kv(k, v, batch, kv, spec)
    for pages, x in ((kv.keys(1).values, k), (kv.values(1).values, v)):
        rounded = x.reshape(3, 2, 4).astype(np.float16)
        np.testing.assert_array_equal(pages[2, 1, :, 5], rounded[0])
        np.testing.assert_array_equal(pages[0, 1, :, 31], rounded[2])
        assert np.count_nonzero(pages) == 2 * 8


def test_float16_keys_are_clamped_to_its_range(ops: ReferenceOps) -> None:
    spec = attention_spec(1, 1, 4)
    kv = ops.new_kv_pool(one_group(1, 4, "float16"), 1)
    k = np.array([[1e6, -1e6, 65504.0, 1.0]], dtype=np.float32)
    ops.store_kv(k, k, make_batch(Chunk((0,), 0, 1)), kv, spec)
    assert kv.keys(0).values[0, 0, 0, 0].tolist() == [65504.0, -65504.0, 65504.0, 1.0]


def test_copies_run_in_order_before_the_step(ops: ReferenceOps) -> None:
    kv = ops.new_kv_pool(one_group(1, 4), 4)
    for block in range(4):
        kv.keys(0).values[block] = block
    copies = (CopySpan(1, 2, 32), CopySpan(2, 3, 7))
    ops.begin_step(make_batch(Chunk((0,), 0, 1), copies=copies), kv)
    assert [int(kv.keys(0).values[b, 0, 0, 0, 0]) for b in range(4)] == [0, 1, 1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_attention_after_a_copied_prefix(mode: ReferenceMode) -> None:
    """A sequence that takes over 40 tokens of another goes on as if it had computed them."""
    ops, spec = ReferenceOps(mode), attention_spec()
    q, k, v = (normal(i, 50, h * 16) for i, h in enumerate((6, 2, 2)))
    kv = ops.new_kv_pool(one_group(2, 16), 6)
    whole = make_batch(Chunk((0, 1), 0, 50))
    ops.store_kv(k, v, whole, kv, spec)
    expected = ops.paged_attention(q, whole, kv, spec)
    batch = make_batch(Chunk((0, 4), 40, 50), copies=(CopySpan(1, 4, 8),))
    ops.begin_step(batch, kv)
    ops.store_kv(k[40:], v[40:], batch, kv, spec)
    out = ops.paged_attention(q[40:], batch, kv, spec)
    if mode == "blas":
        np.testing.assert_allclose(out, expected[40:], atol=1e-6)
    else:
        assert same_bits(out, expected[40:])


def test_blocks_can_be_read_and_written(ops: ReferenceOps) -> None:
    kv = ops.new_kv_pool(one_group(1, 4), 2)
    kv.keys(0).values[0] = 3
    ops.write_block(kv, 1, ops.read_block(kv, 0))
    assert (kv.keys(0).values[1] == 3).all()


def test_broken_weights_show_in_the_result_without_a_warning(ops: ReferenceOps) -> None:
    values = normal(0, 4, 256)
    values[0, 0], values[1, 1], values[2] = np.inf, np.nan, 3e38
    x = np.full((2, 256), 3e38, dtype=np.float32)
    out = ops.linear(x, ops.prepare("linear", [float_tensor(values)]))
    assert not np.isfinite(out[:, :3]).any()
    ops.rms_norm(out, vector(normal(1, 4)), 1e-6)
    ops.silu_mul(out, out)
    ops.gelu_mul(out, out)
    ops.softcap(out, 2.0)
