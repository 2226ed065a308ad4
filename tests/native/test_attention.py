"""Paged attention: the reference within float32, and equal bits however it is cut and run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest

from firstword.batch import Float32Array, ForwardBatch, Int32Array
from firstword.kvcache.spec import KVCacheSpec, KVGroup, head_bytes
from firstword.kvcache.storage import PagedStorage
from firstword.ops.int8_kv import quantize_keys, quantize_values
from firstword.ops.protocol import AttentionSpec
from firstword.ops.reference import ReferenceOps
from tests.native.abi import (
    AttentionArgs,
    Isa,
    Kernels,
    KVPages,
    StoreKVArgs,
    pointer,
    same_bits,
)

PAGE = 32
LAYERS, LAYER = 2, 1  # the layer under test is the second of its group


@dataclass(frozen=True)
class Shape:
    """One layer's attention."""

    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    window: int | None = None
    softcap: float | None = None
    dtype: str = "float16"

    @property
    def layer_bytes(self) -> int:
        """Of one layer in one page."""
        return PAGE * 2 * self.kv_heads * head_bytes(self.dtype, self.head_dim)

    @property
    def spec(self) -> AttentionSpec:
        return AttentionSpec(
            layer=LAYER,
            group=0,
            index_in_group=LAYER,
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            scale=self.head_dim**-0.5,
            window=self.window,
            softcap=self.softcap,
        )


@dataclass(frozen=True)
class Rows:
    """Rows of one step: of each sequence, the positions [start, stop)."""

    spans: tuple[tuple[int, int, int], ...]  # sequence, start, stop
    padded: int = 0  # rows of a sequence that has none stored


@dataclass
class World:
    """Sequences with queries, keys and values at every position, in pages of random order."""

    kernels: Kernels
    shape: Shape
    lengths: Sequence[int]
    seed: int = 0
    blank: float = np.nan  # what pages hold where nothing is stored
    q: list[Float32Array] = field(init=False)
    k: list[Float32Array] = field(init=False)
    v: list[Float32Array] = field(init=False)
    tables: Int32Array = field(init=False)
    pages: np.ndarray[tuple[int, ...], np.dtype[np.float16]] = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        wide, narrow = (n * self.shape.head_dim for n in (self.shape.heads, self.shape.kv_heads))

        def draw(width: int) -> list[Float32Array]:
            return [rng.standard_normal((n, width), dtype=np.float32) for n in self.lengths]

        self.q, self.k, self.v = draw(wide), draw(narrow), draw(narrow)
        counts = [-(-n // PAGE) for n in self.lengths]
        free = iter(rng.permutation(sum(counts) + 3))
        self.tables = np.full((len(counts), max(counts)), -1, np.int32)
        for sequence, count in enumerate(counts):
            self.tables[sequence, :count] = [next(free) for _ in range(count)]
        halves = LAYERS * self.shape.layer_bytes // 2 + 32  # whatever is stored in them
        self.pages = np.full((sum(counts) + 3, halves), self.blank, np.float16)

    @property
    def kv_pages(self) -> KVPages:
        offset = LAYER * self.shape.layer_bytes
        is_q8 = self.shape.dtype == "q8"
        return KVPages(pointer(self.pages), self.pages.strides[0], offset, is_q8)

    def batch(self, rows: Rows) -> ForwardBatch:
        positions = [np.arange(start, stop) for _, start, stop in rows.spans]
        slots = [
            self.tables[sequence][p // PAGE] * PAGE + p % PAGE
            for (sequence, _, _), p in zip(rows.spans, positions, strict=True)
        ]
        lengths = [len(p) for p in positions] + [rows.padded]
        tables = [self.tables[sequence] for sequence, _, _ in rows.spans]
        tables.append(np.full(self.tables.shape[1], -1, np.int32))
        padding = np.full(rows.padded, -1)
        return ForwardBatch(
            token_ids=np.zeros(sum(lengths), np.int32),
            positions=np.concatenate([*positions, 0 * padding]).astype(np.int32),
            query_start_loc=np.cumsum([0, *lengths]).astype(np.int32),
            seq_lens=np.array([*(stop for _, _, stop in rows.spans), 0], np.int32),
            block_tables=(np.array(tables, np.int32),),
            slot_mapping=(np.concatenate([*slots, padding]).astype(np.int32),),
            logits_indices=np.zeros(0, np.int32),
        )

    def gather(self, arrays: list[Float32Array], rows: Rows) -> Float32Array:
        parts = [arrays[sequence][start:stop] for sequence, start, stop in rows.spans]
        padding = np.full((rows.padded, arrays[0].shape[1]), np.nan, np.float32)
        return np.concatenate([*parts, padding])

    def store(self, isa: Isa, rows: Rows) -> None:
        k, v = self.gather(self.k, rows), self.gather(self.v, rows)
        slots = self.batch(rows).slot_mapping[0]
        args = StoreKVArgs(
            pointer(k), pointer(v), k.shape[1], v.shape[1], pointer(slots), self.kv_pages,
            self.shape.kv_heads, self.shape.head_dim,
        )  # fmt: skip
        self.kernels.call(isa, "store_kv", args, 0, len(k))

    def store_all(self, isa: Isa = "generic") -> World:
        self.store(isa, Rows(tuple((i, 0, n) for i, n in enumerate(self.lengths))))
        return self

    def attend(self, isa: Isa, rows: Rows, runs: int = 1) -> Float32Array:
        """Attention of the rows, the items run in `runs` ranges, last range first."""
        batch, q = self.batch(rows), self.gather(self.q, rows)
        out = np.full_like(q, 7)
        args = AttentionArgs(
            pointer(q), q.shape[1], pointer(out), q.shape[1], pointer(batch.positions),
            pointer(batch.query_start_loc), pointer(batch.seq_lens),
            pointer(batch.block_tables[0]), batch.num_seqs, batch.block_tables[0].shape[1],
            self.kv_pages, self.shape.heads, self.shape.kv_heads, self.shape.head_dim,
            self.shape.spec.scale, self.shape.window or 0, self.shape.softcap or 0, None,
        )  # fmt: skip
        partials = np.full(self.kernels.call(isa, "partial_floats", args), np.nan, np.float32)
        args.partials = pointer(partials)
        size = self.kernels.call(
            isa, "scratch_bytes", self.shape.heads, self.shape.kv_heads, self.shape.head_dim,
            max(self.lengths),
        )  # fmt: skip
        items = self.kernels.call(isa, "items", args)
        borders = [items * i // runs for i in range(runs + 1)]
        for first, last in reversed(list(pairwise(borders))):
            scratch = np.full(size // 4, np.nan, np.float32)
            self.kernels.call(isa, "attention", args, first, last, scratch)
        self.kernels.call(isa, "attention_merge", args, 0, len(q))
        return out

    def reference(self, rows: Rows) -> Float32Array:
        """The same by the NumPy backend in float64 over pages of its own layout."""
        spec, ops = self.shape.spec, ReferenceOps("exact")
        group = KVGroup(
            "full" if spec.window is None else "sliding",
            "full" if spec.window is None else "sliding",
            tuple(range(LAYERS)),
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            k_dtype=self.shape.dtype,
            v_dtype=self.shape.dtype,
            window=spec.window,
        )
        pool = PagedStorage(KVCacheSpec((group,)), len(self.pages))
        everything = Rows(tuple((i, 0, n) for i, n in enumerate(self.lengths)))
        k, v = self.gather(self.k, everything), self.gather(self.v, everything)
        ops.store_kv(k, v, self.batch(everything), pool, spec)
        return ops.paged_attention(self.gather(self.q, rows), self.batch(rows), pool, spec)


SHAPES = [
    Shape(4, 4, 64),
    Shape(9, 3, 64),
    Shape(4, 1, 80),
    Shape(8, 1, 96),
    Shape(4, 2, 128, window=48),
    Shape(4, 1, 256, window=31),
    Shape(6, 2, 16, window=1),
    Shape(3, 1, 64, window=512),
    Shape(10, 2, 32, softcap=5.0),
    Shape(7, 1, 48, window=33, softcap=30.0),
]


SHAPES += [replace(shape, dtype="q8") for shape in SHAPES]
DTYPES = ["float16", "q8"]


def name_of(shape: Shape) -> str:
    heads = f"{shape.heads}/{shape.kv_heads}x{shape.head_dim}"
    return f"{heads}-w{shape.window}-c{shape.softcap}-{shape.dtype}"


def test_store_rounds_and_clamps_like_the_reference(kernels: Kernels, isa: Isa) -> None:
    world = World(kernels, Shape(4, 2, 32), [70])
    special = np.array(
        [65504, 65520, 1e9, -np.inf, np.nan, -0.0, 6e-8, 2.9802322e-08, 2.98023224e-8, 6.1e-5,
         2049, 2051, -1e-45, 0.000060975552, 8.9407e-08],
        np.float32,
    )  # fmt: skip
    world.k[0][3, : len(special)] = special
    world.v[0][40, : len(special)] = special
    world.k[0][5:] *= np.float32(2) ** np.random.default_rng(1).integers(-30, 18, (65, 64))
    world.store(isa, Rows(((0, 0, 70),), padded=2))
    layers = world.pages[:, :-32].reshape(-1, LAYERS, 2, 2, PAGE * 32)
    expected = np.clip(np.stack([world.k[0], world.v[0]]), -65504, 65504).astype(np.float16)
    for position in range(70):
        page = layers[world.tables[0][position // PAGE], LAYER]
        keys = page[:, 0].reshape(2, 32, PAGE)[:, :, position % PAGE]
        values = page[:, 1].reshape(2, PAGE, 32)[:, position % PAGE]
        np.testing.assert_array_equal(keys.ravel(), expected[0, position])
        np.testing.assert_array_equal(values.ravel(), expected[1, position])
    held = world.tables[0]
    assert np.isnan(np.delete(layers, held, axis=0)).all(), "another page was written"
    assert np.isnan(layers[held, 0]).all(), "another layer was written"


@pytest.mark.parametrize("head_dim", [16, 48, 64, 80, 96, 256])
def test_q8_stores_the_codes_of_the_definition(kernels: Kernels, isa: Isa, head_dim: int) -> None:
    world = World(kernels, Shape(4, 2, head_dim, dtype="q8"), [70])
    sizes = np.float32(2) ** np.random.default_rng(1).integers(-20, 17, (70, 2 * head_dim))
    world.k[0] *= sizes
    world.v[0][30:] *= sizes[30:]
    world.k[0][7], world.v[0][8] = 0, 0
    world.k[0][3, :5] = np.inf, 1e9, -1e30, -np.inf, 6e-8
    world.v[0][40, :3] = -np.inf, np.nan, 1
    world.store(isa, Rows(((0, 0, 70),), padded=2))
    held = world.pages.view(np.uint8)[:, LAYER * world.shape.layer_bytes :][:, :-64]
    heads = held.reshape(len(held), 2, 2, -1)  # [page, head, K or V, bytes]
    codes, scales = heads[..., : PAGE * head_dim].view(np.int8), heads[..., PAGE * head_dim :]
    scales = np.ascontiguousarray(scales).view(np.float16)
    expected_keys, key_scales = quantize_keys(world.k[0].reshape(70, 2, head_dim))
    expected_values, value_scales = quantize_values(world.v[0].reshape(70, 2, head_dim))
    for position in range(70):
        page, t = world.tables[0][position // PAGE], position % PAGE
        keys = codes[page, :, 0].reshape(2, head_dim // 4, PAGE, 4)[:, :, t]
        values = codes[page, :, 1].reshape(2, PAGE, head_dim)[:, t]
        np.testing.assert_array_equal(keys.reshape(2, -1), expected_keys[position])
        np.testing.assert_array_equal(values, expected_values[position])
        np.testing.assert_array_equal(scales[page, :, 0, t], key_scales[position])
        np.testing.assert_array_equal(scales[page, :, 1, t], value_scales[position])


@pytest.mark.parametrize("dtype", DTYPES)
def test_store_has_equal_bits(kernels: Kernels, dtype: str) -> None:
    images = []
    for isa in kernels.isas:
        world = World(kernels, Shape(4, 2, 48, dtype=dtype), [100])
        world.k[0] *= np.float32(2) ** np.random.default_rng(2).integers(-40, 20, (100, 96))
        world.k[0][1, :3] = np.nan, -np.nan, np.inf
        images.append(world.store_all(isa).pages.view(np.uint16))
    for image in images:
        np.testing.assert_array_equal(image, images[0])


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
def test_agrees_with_the_reference(kernels: Kernels, vectors: Isa, shape: Shape) -> None:
    lengths = [1600, 33, 1, 700]
    rows = Rows(((0, 1490, 1600), (1, 0, 33), (2, 0, 1), (3, 699, 700)), padded=3)
    world = World(kernels, shape, lengths).store_all()
    np.testing.assert_allclose(
        world.attend(vectors, rows), world.reference(rows), rtol=2e-5, atol=2e-6
    )


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
def test_vector_body_has_the_bits_of_the_scalar_one(
    kernels: Kernels, vectors: Isa, shape: Shape
) -> None:
    world = World(kernels, shape, [1100, 40]).store_all()
    rows = Rows(((0, 1012, 1040), (1, 0, 40), (0, 1098, 1100)), padded=1)
    assert same_bits(world.attend(vectors, rows), world.attend("generic", rows))


def ways_to_cut(length: int) -> Iterator[tuple[tuple[int, int], ...]]:
    yield ((0, length),)
    yield tuple((i, min(i + 100, length)) for i in range(0, length, 100))
    yield tuple((i, min(i + 3, length)) for i in range(0, length, 3))
    yield ((0, 511), (511, 513), (513, length - 1), (length - 1, length))


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
def test_chunks_and_single_rows_have_the_bits_of_the_whole(
    kernels: Kernels, vectors: Isa, shape: Shape
) -> None:
    length = 1100
    world = World(kernels, shape, [length]).store_all()
    whole = world.attend(vectors, Rows(((0, 0, length),)))
    for cut in ways_to_cut(length):
        parts = [world.attend(vectors, Rows(((0, start, stop),))) for start, stop in cut]
        assert same_bits(np.concatenate(parts), whole)
    rng = np.random.default_rng(3)
    for row in rng.integers(0, length, 40):
        assert same_bits(world.attend(vectors, Rows(((0, row, row + 1),))), whole[row : row + 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_row_at_a_time_has_the_bits_of_the_whole_prompt(
    kernels: Kernels, vectors: Isa, dtype: str
) -> None:
    shape = Shape(9, 3, 64, dtype=dtype)
    world = World(kernels, shape, [600]).store_all()
    whole = world.attend(vectors, Rows(((0, 0, 600),)))
    rows = [world.attend(vectors, Rows(((0, i, i + 1),))) for i in range(600)]
    assert same_bits(np.concatenate(rows), whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 40])
def test_stored_step_by_step_has_the_bits_of_stored_at_once(
    kernels: Kernels, isa: Isa, window: int | None, dtype: str
) -> None:
    """What a page holds beyond a query, be it stored later or never, changes nothing."""
    shape = Shape(4, 2, 32, window=window, dtype=dtype)
    full = World(kernels, shape, [90]).store_all(isa)
    whole = full.attend(isa, Rows(((0, 0, 90),)))
    for blank in (np.nan, np.inf, 3.0):
        world = World(kernels, shape, [90], blank=blank)
        for start, stop in ((0, 5), (5, 6), (6, 64), (64, 90)):
            span = Rows(((0, start, stop),))
            world.store(isa, span)
            assert same_bits(world.attend(isa, span), whole[start:stop])


@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_order_pages_and_threads_change_no_bit(
    kernels: Kernels, vectors: Isa, dtype: str
) -> None:
    shape, lengths = Shape(8, 2, 64, dtype=dtype), [1300, 80, 600, 31]
    spans = ((0, 1250, 1300), (1, 79, 80), (2, 595, 600), (3, 0, 31))
    world = World(kernels, shape, lengths).store_all()
    alone = [world.attend(vectors, Rows((span,))) for span in spans]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3)):
        rows = Rows(tuple(spans[i] for i in order), padded=2)
        expected = np.concatenate([*(alone[i] for i in order), np.zeros((2, 512), np.float32)])
        for runs in (1, 2, 7, 1000):
            assert same_bits(world.attend(vectors, rows, runs), expected)
    moved = replace(world, blank=5.0)
    held = np.argwhere(world.tables >= 0)
    fresh = np.random.default_rng(9).permutation(len(moved.pages))[: len(held)]
    moved.tables = np.full_like(world.tables, -1)
    moved.tables[tuple(held.T)] = fresh
    moved.store_all()
    for span, expected in zip(spans, alone, strict=True):
        assert same_bits(moved.attend(vectors, Rows((span,))), expected)


@pytest.mark.parametrize("window", [31, 48, 512])
def test_pages_behind_the_window_need_not_be_held(
    kernels: Kernels, vectors: Isa, window: int
) -> None:
    world = World(kernels, Shape(3, 1, 64, window=window), [1600]).store_all()
    rows = Rows(((0, 1500, 1600),))
    expected = world.attend(vectors, rows)
    first_needed = (1500 - window + 1) // PAGE
    world.pages[world.tables[0, :first_needed]] = np.nan
    world.tables[0, :first_needed] = -1
    assert same_bits(world.attend(vectors, rows), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores_do_not_overflow(kernels: Kernels, isa: Isa, dtype: str) -> None:
    world = World(kernels, Shape(2, 1, 32, dtype=dtype), [600])
    world.q[0] *= 1e4
    world.k[0] *= 1e3
    world.store_all(isa)
    rows = Rows(((0, 590, 600),))
    out = world.attend(isa, rows)
    assert np.isfinite(out).all()
    np.testing.assert_allclose(out, world.reference(rows), rtol=2e-3, atol=2e-3)


def test_nan_reaches_the_rows_that_see_it_and_no_other(kernels: Kernels, isa: Isa) -> None:
    world = World(kernels, Shape(4, 2, 32, window=48), [200])
    world.k[0][100, 3] = np.nan  # kv head 0
    world.v[0][100, 40] = np.nan  # kv head 1, value 8
    out = world.store_all(isa).attend(isa, Rows(((0, 0, 200),)))
    by_head = out.reshape(200, 4, 32)
    sees = (np.arange(200) >= 100) & (np.arange(200) < 148)
    assert (np.isnan(by_head[:, :2]).all(axis=(1, 2)) == sees).all()
    assert (np.isnan(by_head[:, 2:, 8]).all(axis=1) == sees).all()
    by_head[sees, :2], by_head[sees, 2:, 8] = 0, 0
    assert np.isfinite(by_head).all()


def test_nan_in_q8_is_that_of_its_whole_head(kernels: Kernels, isa: Isa) -> None:
    world = World(kernels, Shape(4, 2, 32, dtype="q8"), [70])
    world.k[0][50, 3] = np.nan  # kv head 0
    world.v[0][50, 40] = np.nan  # kv head 1
    world.q[0][10, 33], world.q[0][11, 66] = np.inf, np.nan  # query heads 1 and 2
    by_head = world.store_all(isa).attend(isa, Rows(((0, 0, 70),))).reshape(70, 4, 32)
    expected = np.zeros((70, 4), bool)
    expected[50:] = expected[10, 1] = expected[11, 2] = True
    assert (np.isnan(by_head).all(axis=2) == expected).all()
    assert np.isfinite(by_head[~expected]).all()


def test_the_largest_sums_of_codes_stay_exact(kernels: Kernels, isa: Isa) -> None:
    """All codes at an end of their range: no sum of products overflows on its way."""
    world = World(kernels, Shape(2, 1, 512, dtype="q8"), [40])
    signs = np.where(np.arange(40) % 2, -1, 1).astype(np.float32)[:, None]
    for x in (world.q[0], world.k[0], world.v[0]):
        x[:] = 0
        x[:, ::512] = signs  # rotated, all values are the same
    rows = Rows(((0, 0, 40),))
    out = world.store_all(isa).attend(isa, rows)
    np.testing.assert_allclose(out, world.reference(rows), rtol=2e-5, atol=2e-6)
