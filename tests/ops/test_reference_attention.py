from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from firstword.batch import Float32Array, ForwardBatch
from firstword.kvcache.storage import PagedStorage
from firstword.ops import reference_attention
from firstword.ops.int8_kv import quantize_keys, quantize_values, round_queries
from firstword.ops.protocol import AttentionSpec
from firstword.ops.reference import ReferenceOps
from firstword.ops.reference_attention import blas_attention, exact_attention
from tests.ops.builders import Chunk, attention_spec, make_batch, normal, one_group, same_bits

QKV = tuple[Float32Array, Float32Array, Float32Array]
Attend = Callable[[Float32Array, ForwardBatch, PagedStorage, AttentionSpec], Float32Array]
BOTH = pytest.mark.parametrize("attend", [blas_attention, exact_attention])
N = 100
SPECS = {
    "full": attention_spec(),
    "one head each": attention_spec(4, 4, 8),
    "one kv head": attention_spec(4, 1, 32),
    "window 1": attention_spec(window=1),
    "window 33": attention_spec(window=33),
    "window beyond the sequence": attention_spec(window=500),
    "softcap": replace(attention_spec(), softcap=1.5),
    "sinks": replace(attention_spec(), sinks=(0.5, -1.0, 2.0, 0.0, 3.0, -20.0)),
    "all": replace(attention_spec(window=40), softcap=2.0, sinks=(1.0,) * 6),
}
EVERY_SPEC = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def qkv(spec: AttentionSpec, seed: int = 0, length: int = N) -> QKV:
    q = normal(seed, length, spec.num_heads * spec.head_dim)
    k, v = (normal(seed + i, length, spec.num_kv_heads * spec.head_dim) for i in (1, 2))
    return q, k, v


def dense(arrays: QKV, spec: AttentionSpec) -> Float32Array:
    """Attention by its definition: one query head at a time over the whole sequence."""
    q, k, v = arrays
    n, d = len(q), spec.head_dim
    position = np.arange(n)
    seen = position <= position[:, None]
    if spec.window is not None:
        seen &= position > position[:, None] - spec.window
    outputs = []
    for head in range(spec.num_heads):
        kv = head // (spec.num_heads // spec.num_kv_heads)
        query = q[:, head * d : (head + 1) * d].astype(np.float64)
        scores = query @ k[:, kv * d : (kv + 1) * d].T.astype(np.float64) * spec.scale
        if spec.softcap is not None:
            scores = spec.softcap * np.tanh(scores / spec.softcap)
        weights = np.where(seen, np.exp(scores), 0)
        total = weights.sum(axis=1, keepdims=True)
        if spec.sinks is not None:
            total += np.exp(spec.sinks[head])
        outputs.append(weights / total @ v[:, kv * d : (kv + 1) * d])
    out: Float32Array = np.concatenate(outputs, axis=1).astype(np.float32)
    return out


def pool(spec: AttentionSpec, num_blocks: int = 16, dtype: str = "float32") -> PagedStorage:
    """A pool full of NaN: whatever is read without having been stored shows."""
    kv = PagedStorage(one_group(spec.num_kv_heads, spec.head_dim, dtype), num_blocks)
    for view in (kv.keys(0), kv.values(0)):
        (view.values if view.scales is None else view.scales)[:] = np.nan
    return kv


def run_chunks(
    attend: Attend,
    spec: AttentionSpec,
    borders: Sequence[int],
    table: Sequence[int] = (0, 1, 2, 3),
) -> Float32Array:
    """Store and attend chunk by chunk, as steps of the engine do."""
    q, k, v = qkv(spec)
    kv, ops, outs = pool(spec), ReferenceOps(), []
    for start, stop in pairwise(borders):
        batch = make_batch(Chunk(table, start, stop))
        ops.store_kv(k[start:stop], v[start:stop], batch, kv, spec)
        outs.append(attend(q[start:stop], batch, kv, spec))
    return np.concatenate(outs)


@BOTH
@EVERY_SPEC
def test_equals_dense_attention(attend: Attend, spec: AttentionSpec) -> None:
    out = run_chunks(attend, spec, [0, N])
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, dense(qkv(spec), spec), atol=3e-6)


@EVERY_SPEC
@pytest.mark.parametrize(
    "borders", [range(N + 1), [*range(0, N, 7), N], [0, 31, 32, 33, 64, N], [0, 1, 99, N]]
)
def test_exact_does_not_depend_on_chunks(spec: AttentionSpec, borders: Sequence[int]) -> None:
    chunked = run_chunks(exact_attention, spec, borders)
    assert same_bits(chunked, run_chunks(exact_attention, spec, [0, N]))


@EVERY_SPEC
def test_blas_in_chunks_is_close(spec: AttentionSpec) -> None:
    chunked = run_chunks(blas_attention, spec, [0, 1, 40, 64, N])
    np.testing.assert_allclose(chunked, dense(qkv(spec), spec), atol=3e-6)


@BOTH
def test_where_blocks_lie_does_not_matter(attend: Attend) -> None:
    spec = attention_spec(window=50)
    scattered = run_chunks(attend, spec, [0, 60, N], table=(11, 3, 15, 0))
    assert same_bits(scattered, run_chunks(attend, spec, [0, 60, N]))


def test_exact_does_not_depend_on_the_batch() -> None:
    spec = attention_spec(window=45)
    q, k, v = qkv(spec)
    other = qkv(spec, seed=50)
    kv, ops = pool(spec), ReferenceOps()
    ours, theirs = Chunk((5, 9, 2, 7), 0, 70), Chunk((1, 3, 4, 8), 0, N)
    batch = make_batch(theirs, ours)
    mixed_q, mixed_k, mixed_v = (
        np.concatenate([b, a[:70]]) for a, b in zip((q, k, v), other, strict=True)
    )
    ops.store_kv(mixed_k, mixed_v, batch, kv, spec)
    out = exact_attention(mixed_q, batch, kv, spec)
    assert same_bits(out[N:], run_chunks(exact_attention, spec, [0, 70]))


def test_exact_never_multiplies_what_a_query_does_not_see() -> None:
    spec = attention_spec(window=30)
    q, k, v = qkv(spec)
    expected = run_chunks(exact_attention, spec, [0, N])
    k[[10, 70]] = v[[10, 70]] = np.nan
    kv, batch = pool(spec), make_batch(Chunk((0, 1, 2, 3), 0, N))
    ReferenceOps().store_kv(k, v, batch, kv, spec)
    out = exact_attention(q, batch, kv, spec)
    sees = [any(p - 30 < bad <= p for bad in (10, 70)) for p in range(N)]
    assert np.isnan(out).all(axis=1).tolist() == sees
    assert same_bits(out[~np.array(sees)], expected[~np.array(sees)])


@BOTH
def test_blocks_left_behind_by_the_window_are_not_needed(attend: Attend) -> None:
    spec = attention_spec(window=20)
    q, k, v = qkv(spec)
    kv, ops = pool(spec), ReferenceOps()
    ops.store_kv(k, v, make_batch(Chunk((0, 1, 2, 3), 0, N)), kv, spec)
    kv.keys(0).values[:2] = kv.values(0).values[:2] = np.nan
    batch = make_batch(Chunk((-1, -1, 2, 3), 90, N))
    out = attend(q[90:], batch, kv, spec)
    np.testing.assert_allclose(out, dense((q, k, v), spec)[90:], atol=3e-6)


@BOTH
def test_a_block_that_is_needed_but_not_held_is_our_bug(attend: Attend) -> None:
    spec = attention_spec()
    batch = make_batch(Chunk((0, -1, 2, 3), 90, N))
    with pytest.raises(AssertionError, match="not held"):
        attend(qkv(spec)[0][90:], batch, pool(spec), spec)


@BOTH
def test_padded_sequences_give_zeros(attend: Attend) -> None:
    spec = attention_spec()
    q, k, v = qkv(spec)
    kv = pool(spec)
    whole = make_batch(Chunk((0, 1, 2, 3), 0, N))
    batch = replace(
        whole,
        positions=np.append(whole.positions, [0, 0]).astype(np.int32),
        query_start_loc=np.array([0, N, N + 2, N + 2], dtype=np.int32),
        seq_lens=np.array([N, 0, 0], dtype=np.int32),
        block_tables=(np.array([[0, 1, 2, 3], [-1] * 4, [-1] * 4], dtype=np.int32),),
        slot_mapping=(np.append(whole.slot_mapping[0], [-1, -1]).astype(np.int32),),
    )
    padding = np.full((2, q.shape[1]), np.nan, dtype=np.float32)
    ReferenceOps().store_kv(
        np.concatenate([k, padding[:, : k.shape[1]]]),
        np.concatenate([v, padding[:, : v.shape[1]]]),
        batch,
        kv,
        spec,
    )
    out = attend(np.concatenate([q, padding]), batch, kv, spec)
    assert same_bits(out[:N], attend(q, whole, kv, spec))
    assert not out[N:].any()


def test_blas_tiles_its_query_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = attention_spec(window=30)
    whole = run_chunks(blas_attention, spec, [0, N])
    monkeypatch.setattr(reference_attention, "_MAX_SCORES", 7 * spec.num_heads * 30)
    np.testing.assert_allclose(run_chunks(blas_attention, spec, [0, N]), whole, atol=1e-6)


@BOTH
def test_large_scores_do_not_overflow(attend: Attend) -> None:
    spec = attention_spec()
    q, k, v = qkv(spec)
    kv = pool(spec)
    batch = make_batch(Chunk((0, 1, 2, 3), 0, N))
    ReferenceOps().store_kv(k * np.float32(1000), v, batch, kv, spec)
    out = attend(q * np.float32(1000), batch, kv, spec)
    assert np.isfinite(out).all()


@BOTH
def test_sinks_far_above_every_score_take_everything(attend: Attend) -> None:
    out = run_chunks(attend, replace(attention_spec(), sinks=(1000.0,) * 6), [0, N])
    assert not out.any()


@BOTH
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_keys_and_values_in_half_precision(attend: Attend, dtype: str) -> None:
    spec = attention_spec()
    q, k, v = qkv(spec)
    kv = pool(spec, dtype=dtype)
    batch = make_batch(Chunk((0, 1, 2, 3), 0, N))
    ReferenceOps().store_kv(k, v, batch, kv, spec)
    k, v = (x.astype(kv.keys(0).values.dtype).astype(np.float32) for x in (k, v))
    np.testing.assert_allclose(attend(q, batch, kv, spec), dense((q, k, v), spec), atol=3e-6)


@BOTH
def test_keys_and_values_in_8_bits(attend: Attend) -> None:
    spec = attention_spec()
    q, k, v = qkv(spec)
    kv = pool(spec, dtype="q8")
    batch = make_batch(Chunk((0, 1, 2, 3), 0, N))
    ReferenceOps().store_kv(k, v, batch, kv, spec)
    heads = (N, spec.num_kv_heads, spec.head_dim)
    keys, values = (
        (codes * scales[..., None].astype(np.float32)).reshape(k.shape)
        for codes, scales in (
            quantize_keys(k.reshape(heads)),
            quantize_values(v.reshape(heads)),
        )
    )
    rounded = round_queries(q.reshape(N, -1, spec.head_dim)).reshape(q.shape)
    out = attend(q, batch, kv, spec)
    np.testing.assert_allclose(out, dense((rounded, keys, values), spec), atol=3e-6)
    np.testing.assert_allclose(out, dense((q, k, v), spec), atol=0.03)
