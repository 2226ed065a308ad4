"""Every instruction set against the definition in ops.int8, bit for bit."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from firstword.batch import Float32Array
from firstword.ops.int8 import int8_linear, quantize_activations
from firstword.quant import INTEGER_TYPES, GGMLType, RawTensor, dequantize, integer_blocks
from tests.native.linear_library import A256_TYPES, FLOAT_TYPES, LinearLibrary, can_build
from tests.ops.builders import HALVES, float_tensor, normal, random_tensor

pytestmark = pytest.mark.skipif(not can_build(), reason="needs x86-64 and g++")

NARROW = sorted(INTEGER_TYPES - A256_TYPES)
WIDE = sorted(A256_TYPES)
FLOATS = sorted(FLOAT_TYPES)
TYPES = NARROW + WIDE + FLOATS


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> LinearLibrary:
    return LinearLibrary(tmp_path_factory.mktemp("linear"))


@pytest.fixture(params=["generic", "avx2", "avx512"])
def isa(request: pytest.FixtureRequest, library: LinearLibrary) -> str:
    name = str(request.param)
    if not library.supported(name):
        pytest.skip(f"this CPU has no {name}")
    return name


def expected(x: Float32Array, tensor: RawTensor) -> Float32Array:
    """The definition."""
    if tensor.type in INTEGER_TYPES:
        with np.errstate(all="ignore"):
            return int8_linear(x, integer_blocks(tensor))
    with np.errstate(all="ignore"):
        return int8_linear(x, dequantize(tensor))


def assert_same(actual: Float32Array, wanted: Float32Array) -> None:
    """Equal bits, the sign of zero included; one NaN is like another."""
    same = (actual.view(np.uint32) == wanted.view(np.uint32)) | (
        np.isnan(actual) & np.isnan(wanted)
    )
    wrong = np.argwhere(~same)
    assert same.all(), f"{len(wrong)} of {same.size} differ, first at {wrong[:3].tolist()}"


def columns(ggml_type: GGMLType) -> list[int]:
    if ggml_type in A256_TYPES:
        return [256, 768]
    return [32, 256, 576] if ggml_type in INTEGER_TYPES else [5, 256, 600]


@pytest.mark.parametrize("ggml_type", TYPES)
def test_rows_of_panels_are_the_dequantized_rows(
    library: LinearLibrary, ggml_type: GGMLType
) -> None:
    for n, k in [(1, 512), (70, 256), (97, 768)]:
        tensor = random_tensor(ggml_type, (n, k), seed=n)
        panels = library.repack(tensor, cuts=[1] if n > 32 else [])
        rows = np.stack([library.embed_row(panels, row) for row in range(n)])
        assert_same(rows, dequantize(tensor))
        scale = np.float32(25.298)
        assert_same(library.embed_row(panels, 0, float(scale)), dequantize(tensor)[0] * scale)


def activations() -> Iterator[tuple[str, Float32Array]]:
    """Rows that are hard to quantize, [T, 1024] each."""
    rng = np.random.default_rng(0)
    yield "normal", normal(0, 3, 1024)
    powers = np.ldexp(rng.normal(0, 1, (4, 1024)), rng.integers(-150, 120, (4, 1024)))
    yield "wide", powers.astype(np.float32)
    yield "ties", (rng.integers(-254, 255, (2, 1024)) / 2).astype(np.float32)
    tiny = rng.integers(-3, 4, (4, 1024)).astype(np.float32) * np.float32(2.0**-149)
    yield "subnormal", np.concatenate([tiny, tiny * 100, np.zeros_like(tiny), -np.zeros_like(tiny)])
    bad = normal(1, 3, 1024)
    bad[0, 3], bad[1, 500], bad[2, 1000] = np.inf, -np.inf, np.nan
    yield "not finite", bad


@pytest.mark.parametrize("run", [32, 256])
def test_activations_are_quantized_as_defined(library: LinearLibrary, isa: str, run: int) -> None:
    for name, x in activations():
        with np.errstate(all="ignore"):
            codes, scales = quantize_activations(x, run)
        actual = library.quantize(isa, x, run)
        np.testing.assert_array_equal(actual.codes, codes, err_msg=name)
        assert_same(actual.scales, scales)
        span = 32 if run == 32 else 16
        sums = codes.reshape(len(x), -1, span).sum(axis=-1, dtype=np.int32)
        np.testing.assert_array_equal(actual.sums, sums, err_msg=name)


@pytest.mark.parametrize("ggml_type", TYPES)
def test_equals_the_definition(library: LinearLibrary, isa: str, ggml_type: GGMLType) -> None:
    for k in columns(ggml_type):
        tensor = random_tensor(ggml_type, (45, k))
        panels = library.repack(tensor)
        for t in (1, 2, 3, 7, 33):
            x = normal(t, t, k)
            (out,) = library.linear(isa, x, [panels])
            assert_same(out, expected(x, tensor))


@pytest.mark.parametrize("ggml_type", TYPES)
@pytest.mark.parametrize("isa_name", ["avx2", "avx512"])
def test_vectors_equal_scalars_on_larger_shapes(
    library: LinearLibrary, isa_name: str, ggml_type: GGMLType
) -> None:
    if not library.supported(isa_name):
        pytest.skip(f"this CPU has no {isa_name}")
    for n, k, t in [(1, 2048, 1), (16, 512, 65), (64, 512, 130), (97, 2048, 6)]:
        panels = library.repack(random_tensor(ggml_type, (n, k)))
        x = normal(k, t, k)
        wanted = library.linear("generic", x, [panels])[0]
        assert_same(library.linear(isa_name, x, [panels])[0], wanted)


def extreme_tensor(ggml_type: GGMLType, shape: tuple[int, int], byte: int) -> RawTensor:
    """All bits of quants and scales alike: 0x00 and 0xff are the ends of every code."""
    tensor = random_tensor(ggml_type, shape)
    data = np.full_like(tensor.data, byte).reshape(-1, ggml_type.type_size)
    for start in HALVES[ggml_type]:
        data[:, start : start + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    return RawTensor("w", shape, ggml_type, data.reshape(-1))


@pytest.mark.parametrize("ggml_type", NARROW + WIDE)
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_sums_do_not_overflow(
    library: LinearLibrary, isa: str, ggml_type: GGMLType, byte: int
) -> None:
    tensor = extreme_tensor(ggml_type, (32, 512), byte)
    panels = library.repack(tensor)
    pairs = np.tile(np.array([1, 1, -1, -1], dtype=np.float32), 128)
    signs = np.stack([np.ones(512), -np.ones(512), np.tile([1, -1], 256), pairs])
    x = (3 * signs).astype(np.float32)
    for rows in (x, x[:1], x[1:2], x[2:3]):
        (out,) = library.linear(isa, np.ascontiguousarray(rows), [panels])
        assert_same(out, expected(rows, tensor))


def odd_scales(ggml_type: GGMLType) -> RawTensor:
    """Scales that are NaN, infinite, subnormal, zero and huge."""
    values = np.array([np.nan, np.inf, -np.inf, 6e-8, -6e-8, 0, -0.0, 65504, 1], np.float16)
    tensor = random_tensor(ggml_type, (40, 512))
    data = tensor.data.copy().reshape(-1, ggml_type.type_size)
    rng = np.random.default_rng(3)
    if ggml_type == GGMLType.MXFP4:  # powers of two from 2^-128 to 2^127
        data[:, :1] = rng.choice(np.array([0, 1, 2, 120, 254, 255], np.uint8), (len(data), 1))
    for start in HALVES[ggml_type]:
        chosen = rng.choice(values, (len(data), 1), p=[0.01] * 3 + [0.97 / 6] * 6)
        data[:, start : start + 2] = chosen.astype("<f2").view(np.uint8)
    return RawTensor("w", tensor.shape, ggml_type, data.reshape(-1))


@pytest.mark.parametrize("ggml_type", NARROW + WIDE)
def test_odd_scales_and_activations(library: LinearLibrary, isa: str, ggml_type: GGMLType) -> None:
    tensor = odd_scales(ggml_type)
    panels = library.repack(tensor)
    x = normal(5, 6, 512)
    x[1] *= np.float32(1e-41)
    x[2] *= np.float32(1e35)
    x[3, 40], x[4, 300], x[5] = np.nan, np.inf, 0
    (out,) = library.linear(isa, x, [panels])
    assert_same(out, expected(x, tensor))
    for t in range(6):
        assert_same(library.linear(isa, x[t : t + 1].copy(), [panels])[0], out[t : t + 1])


@pytest.mark.parametrize("ggml_type", FLOATS)
def test_odd_float_weights(library: LinearLibrary, isa: str, ggml_type: GGMLType) -> None:
    values = normal(2, 40, 300)
    values[3] *= np.float32(1e-39)
    values[4, 7], values[5, 8], values[6, 9] = np.nan, np.inf, -np.inf
    tensor = float_tensor(values, ggml_type)
    x = normal(3, 5, 300)
    x[1] *= np.float32(1e-39)
    x[2, 5] = np.inf
    (out,) = library.linear(isa, x, [library.repack(tensor)])
    assert_same(out, expected(x, tensor))


def test_segments_of_different_types_with_bias(library: LinearLibrary, isa: str) -> None:
    """Also in ranges of odd lengths, in another order: items depend on nothing else."""
    types = [GGMLType.Q4_K, GGMLType.Q8_0, GGMLType.BF16]
    tensors = [random_tensor(g, (n, 512)) for g, n in zip(types, (48, 33, 80), strict=True)]
    weights = [library.repack(tensor) for tensor in tensors]
    biases = [normal(1, 1, 48)[0], None, normal(2, 1, 80)[0]]
    for t in (1, 5, 70):
        x = normal(t, t, 512)
        outputs = library.linear(isa, x, weights, biases, cuts=[1, 2, 6, 9])
        for out, tensor, bias in zip(outputs, tensors, biases, strict=True):
            wanted = expected(x, tensor)
            assert_same(out, wanted if bias is None else wanted + bias)


@pytest.mark.parametrize("ggml_type", TYPES)
def test_a_token_does_not_depend_on_its_batch(
    library: LinearLibrary, isa: str, ggml_type: GGMLType
) -> None:
    panels = library.repack(random_tensor(ggml_type, (33, 768)))
    x = normal(9, 11, 768)
    (together,) = library.linear(isa, x, [panels])
    alone = [library.linear(isa, x[t : t + 1].copy(), [panels])[0] for t in range(11)]
    assert_same(together, np.concatenate(alone))


def test_units_export_no_shared_inline_code(library: LinearLibrary) -> None:
    """A weak symbol of a vector unit could be linked into code that runs on any CPU."""
    for path in library.objects:
        if "avx" in path.name:
            names = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
            assert " W " not in names, names


def test_the_checks_can_fail() -> None:
    zeros: NDArray[np.float32] = np.zeros((1, 2), dtype=np.float32)
    with pytest.raises(AssertionError):
        assert_same(zeros, -zeros)
