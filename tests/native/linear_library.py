"""The linear kernels built by the machine's own compiler and called through ctypes.

Not here: the extension module; this drives every instruction set on its own, without Python
bindings in between.
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firstword.batch import Float32Array
from firstword.quant import INTEGER_TYPES, GGMLType, RawTensor
from tests.native.abi import extra_flags

CSRC = Path(__file__).parents[2] / "csrc"
FLAGS = (
    *("-std=c++17", "-O2", "-fno-tree-ter", "-ffp-contract=off", "-fno-math-errno", "-fPIC"),
    *("-Wall", "-Wextra", "-Wconversion", "-Werror"),
)
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni")
SOURCES: dict[str, tuple[str, ...]] = {
    "fmt/panel.cpp": (),
    "fmt/repack.cpp": (),
    "kernels/linear.cpp": (),
    "isa/generic_block.cpp": (),
    "isa/generic_linear.cpp": (),
    "isa/avx2_linear.cpp": AVX2,
    "isa/avx512_linear.cpp": AVX512,
    "tests/linear_test_abi.cpp": (),
}
ISAS = ("generic", "avx2", "avx512")
A256_TYPES = frozenset(t for t in INTEGER_TYPES if t.block_size == 256)
FLOAT_TYPES = frozenset({GGMLType.F32, GGMLType.F16, GGMLType.BF16})


def can_build() -> bool:
    """Whether this is a machine whose units are written: x86-64, with a compiler."""
    return platform.machine() == "x86_64" and _runs(["g++", "--version"])


def _runs(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class _Activations(ctypes.Structure):
    _fields_ = [
        ("t", ctypes.c_int64),
        ("k", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("x", "q32", "d32", "sum32")],
        *[(name, ctypes.c_void_p) for name in ("q256", "d256", "sum256")],
    ]


class _Segment(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("format", ctypes.c_int32),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("bias", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("out_stride", ctypes.c_int64),
    ]


class _LinearArgs(ctypes.Structure):
    _fields_ = [
        ("a", _Activations),
        ("num_segments", ctypes.c_int32),
        ("segment", _Segment * 3),
    ]


@dataclass(frozen=True)
class Panels:
    """A repacked matrix."""

    type: GGMLType
    n: int
    k: int
    data: NDArray[np.uint8]


@dataclass(frozen=True)
class Quantized:
    """Codes [T, K], scales [T, K / run] and sums of codes of activations."""

    codes: NDArray[np.int8]
    scales: Float32Array
    sums: NDArray[np.int32] | NDArray[np.int16]


class LinearLibrary:
    """Compiled kernels. Objects lie in `folder`.

    Args:
        folder: where to build.
        flags: compiler flags, those of the instruction sets excepted.
    """

    def __init__(self, folder: Path, flags: Sequence[str] = FLAGS) -> None:
        self.objects = _compile(folder, flags)
        path = folder / "linear.so"
        subprocess.run(["g++", *extra_flags(), "-shared", "-o", path, *self.objects], check=True)
        self._c = ctypes.CDLL(str(path))
        self._c.fwt_panel_bytes.restype = ctypes.c_int64
        self._c.fwt_linear_items.restype = ctypes.c_int64

    def supported(self, isa: str) -> bool:
        """Whether this CPU has the instruction set."""
        return bool(self._c.fwt_supported(ISAS.index(isa)))

    def repack(self, tensor: RawTensor, cuts: Sequence[int] = ()) -> Panels:
        """Panels of a matrix, written in ranges that end at `cuts`."""
        n, k = tensor.shape
        size = self._c.fwt_panel_bytes(int(tensor.type), _int64(n), _int64(k))
        data = aligned(size)
        bounds = [0, *cuts, (n + 31) // 32]
        source = np.ascontiguousarray(tensor.data)
        for first, last in pairwise(bounds):
            span = (ctypes.c_int64 * 2)(first, last)
            self._c.fwt_repack(
                int(tensor.type), _pointer(source), _int64(n), _int64(k), _pointer(data), span
            )
        return Panels(tensor.type, n, k, data)

    def embed_row(self, panels: Panels, row: int, scale: float = 1.0) -> Float32Array:
        """One dequantized row [K]."""
        out = np.empty(panels.k, dtype=np.float32)
        shape = (ctypes.c_int64 * 2)(panels.n, panels.k)
        data = _pointer(panels.data)
        self._c.fwt_embed_row(
            int(panels.type), data, shape, _int64(row), ctypes.c_float(scale), _pointer(out)
        )
        return out

    def quantize(self, isa: str, x: Float32Array, run: int) -> Quantized:
        """Activations [T, K] to 8 bits in runs of 32 or 256."""
        t, k = x.shape
        codes = np.empty((t, k), dtype=np.int8)
        scales = np.empty((t, k // run), dtype=np.float32)
        sums: NDArray[np.int32] | NDArray[np.int16]
        if run == 32:
            function, sums = self._c.fwt_quantize_a32, np.empty((t, k // 32), dtype=np.int32)
        else:
            function, sums = self._c.fwt_quantize_a256, np.empty((t, k // 16), dtype=np.int16)
        for row in range(t):
            outputs = [_pointer(array[row]) for array in (codes, scales, sums)]
            function(ISAS.index(isa), _pointer(np.ascontiguousarray(x[row])), _int64(k), *outputs)
        return Quantized(codes, scales, sums)

    def linear(
        self,
        isa: str,
        x: Float32Array,
        weights: Sequence[Panels],
        biases: Sequence[Float32Array | None] | None = None,
        cuts: Sequence[int] | None = None,
    ) -> list[Float32Array]:
        """x [T, K] times up to three weights -> [T, N] each.

        Args:
            isa: of ISAS.
            x: [T, K].
            weights: the segments of one call.
            biases: one per weight, or None.
            cuts: ends of ranges of items, run last range first; None: one range.
        """
        call = LinearCall(self, isa, x, weights, biases)
        bounds = [0, *(cuts or ()), call.num_items]
        for first, last in reversed(list(pairwise(bounds))):
            call.run(min(first, call.num_items), min(last, call.num_items))
        return call.outputs


class LinearCall:
    """Arguments of a call, with what they point to kept alive."""

    def __init__(
        self,
        library: LinearLibrary,
        isa: str,
        x: Float32Array,
        weights: Sequence[Panels],
        biases: Sequence[Float32Array | None] | None = None,
    ) -> None:
        self._c = library._c
        self._isa = ISAS.index(isa)
        self.outputs = [np.full((len(x), w.n), 7, dtype=np.float32) for w in weights]
        self._args = _LinearArgs(num_segments=len(weights))
        self._args.a.t, self._args.a.k = x.shape
        self._args.a.x = _pointer(x)
        self._kept: list[object] = [x, weights, biases]
        types = {w.type for w in weights} - FLOAT_TYPES
        if types - A256_TYPES:
            self._set_activations(library.quantize("generic", x, 32), "q32", "d32", "sum32")
        if types & A256_TYPES:
            self._set_activations(library.quantize("generic", x, 256), "q256", "d256", "sum256")
        for i, (w, out) in enumerate(zip(weights, self.outputs, strict=True)):
            bias = None if biases is None else biases[i]
            self._args.segment[i] = _Segment(
                _pointer(w.data),
                self._c.fwt_panel_format(int(w.type)),
                w.n,
                w.k,
                None,
                _pointer(out),
                w.n,
            )
            if bias is not None:
                self._args.segment[i].bias = _pointer(bias)

    def _set_activations(self, quantized: Quantized, *names: str) -> None:
        self._kept.append(quantized)
        arrays = (quantized.codes, quantized.scales, quantized.sums)
        for name, array in zip(names, arrays, strict=True):
            setattr(self._args.a, name, _pointer(array))

    @property
    def num_items(self) -> int:
        """Items of the call."""
        return int(self._c.fwt_linear_items(ctypes.byref(self._args)))

    def run(self, first: int, last: int) -> None:
        """Run a range of items; ctypes releases the GIL meanwhile."""
        self._c.fwt_linear(self._isa, ctypes.byref(self._args), _int64(first), _int64(last))


def aligned(size: int) -> NDArray[np.uint8]:
    """Bytes that begin at a multiple of 64."""
    memory = np.empty(size + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def _compile(folder: Path, flags: Sequence[str]) -> list[Path]:
    jobs = []
    for source, isa_flags in SOURCES.items():
        target = folder / (Path(source).stem + ".o")
        command = [
            "g++",
            *flags,
            *extra_flags(),
            *isa_flags,
            "-I",
            str(CSRC),
            "-c",
            str(CSRC / source),
        ]
        jobs.append((target, subprocess.Popen([*command, "-o", str(target)])))
    failed = [target.stem for target, job in jobs if job.wait() != 0]
    assert not failed, f"not compiled: {failed}"
    return [target for target, _ in jobs]


def _int64(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def _pointer(array: NDArray[np.generic]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
