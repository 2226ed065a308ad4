"""The attention, row and sampling kernels, compiled for tests and called through ctypes.

Not here: the package's own binding, which these tests do not need.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_bool, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

CSRC = Path(__file__).resolve().parents[2] / "csrc"
FLAGS = (
    "-std=c++17 -O2 -fno-tree-ter -ffp-contract=off -fno-math-errno -Wall -Wextra -Wconversion "
    "-Werror -fPIC"
).split()
ISA_FLAGS = {
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": [
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"),
        *("-mavx2", "-mfma", "-mf16c"),
    ],
}
UNITS = (
    "kernels/attention.cpp",
    "kernels/sample.cpp",
    "isa/generic_rows.cpp",
    "isa/generic_kv.cpp",
    "isa/generic_attention.cpp",
    "isa/generic_sample.cpp",
    "isa/avx2_rows.cpp",
    "isa/avx2_attention.cpp",
    "isa/avx2_sample.cpp",
    "isa/avx512_rows.cpp",
    "isa/avx512_attention.cpp",
    "isa/avx512_sample.cpp",
    "tests/attention_test_abi.cpp",
)

Isa = Literal["generic", "avx2", "avx512"]
_NUMBERS: dict[Isa, int] = {"generic": 0, "avx2": 1, "avx512": 2}


class KVPages(ctypes.Structure):
    """kernels/kv_store.h."""

    _fields_ = [
        ("data", c_void_p),
        ("page_bytes", c_int64),
        ("layer_offset", c_int64),
        ("type", c_int32),
    ]


class StoreKVArgs(ctypes.Structure):
    """kernels/kv_store.h."""

    _fields_ = [
        ("k", c_void_p),
        ("v", c_void_p),
        ("k_stride", c_int64),
        ("v_stride", c_int64),
        ("slots", c_void_p),
        ("pages", KVPages),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
    ]


class AttentionArgs(ctypes.Structure):
    """kernels/attention.h."""

    _fields_ = [
        ("q", c_void_p),
        ("q_stride", c_int64),
        ("out", c_void_p),
        ("out_stride", c_int64),
        ("positions", c_void_p),
        ("query_start_loc", c_void_p),
        ("seq_lens", c_void_p),
        ("block_table", c_void_p),
        ("num_seqs", c_int64),
        ("table_stride", c_int64),
        ("pages", KVPages),
        ("heads", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("scale", c_float),
        ("window", c_int32),
        ("softcap", c_float),
        ("partials", c_void_p),
    ]


class SampleRow(ctypes.Structure):
    """kernels/sample.h."""

    _fields_ = [
        ("temperature", c_double),
        ("top_p", c_double),
        ("top_k", c_int64),
        ("seed", c_uint64),
        ("position", c_uint32),
        ("sample_index", c_uint32),
        ("banned", c_void_p),
        ("num_banned", c_int64),
        ("bias_ids", c_void_p),
        ("bias", c_void_p),
        ("num_bias", c_int64),
        ("allowed", c_void_p),
        ("num_allowed_words", c_int64),
        ("num_candidates", c_int64),
        ("penalized", c_void_p),
        ("counts", c_void_p),
        ("num_penalized", c_int64),
        ("repetition", c_float),
        ("frequency", c_float),
        ("presence", c_float),
    ]


class SampleResult(ctypes.Structure):
    """kernels/sample.h."""

    _fields_ = [
        ("status", c_int32),
        ("token", c_int32),
        ("logprob", c_double),
        ("probability", c_double),
        ("uniform", c_double),
        ("num_survivors", c_int64),
        ("num_candidates", c_int64),
    ]


class SampleCandidates(ctypes.Structure):
    """kernels/sample.h."""

    _fields_ = [("ids", c_void_p), ("logprobs", c_void_p), ("probabilities", c_void_p)]


# In the order of `struct_bytes` in csrc/tests/attention_test_abi.cpp.
STRUCTURES = (KVPages, StoreKVArgs, AttentionArgs, SampleRow, SampleResult, SampleCandidates)


def pointer(array: NDArray[Any]) -> int:
    """Address of a contiguous array, which must outlive the call."""
    assert array.flags.c_contiguous
    return int(array.ctypes.data)


def same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two float32 or float64 arrays are equal bit for bit, any NaN as any other."""
    kind = np.uint32 if a.dtype == np.float32 else np.uint64
    equal = (a.view(kind) == b.view(kind)) | (np.isnan(a) & np.isnan(b))
    return a.shape == b.shape and a.dtype == b.dtype and bool(equal.all())


_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "use": (c_int32,),
    "struct_bytes": (c_int32,),
    "rms_norm": (c_void_p, c_void_p, c_float, c_int64, c_void_p),
    "add": (c_void_p, c_void_p, c_int64, c_void_p),
    "rope": (c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_bool),
    "silu_mul": (c_void_p, c_void_p, c_int64, c_void_p),
    "gelu_mul": (c_void_p, c_void_p, c_int64, c_void_p),
    "softcap": (c_void_p, c_int64, c_float),
    "store_kv": (c_void_p, c_int64, c_int64),
    "items": (c_void_p,),
    "partial_floats": (c_void_p,),
    "scratch_bytes": (c_int64, c_int64, c_int64, c_int64),
    "attention": (c_void_p, c_int64, c_int64, c_void_p),
    "attention_merge": (c_void_p, c_int64, c_int64),
    "sample_bytes": (c_int64,),
    "sample": (c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p),
    "softmax_weights": (c_void_p, c_int64, c_float, c_float, c_void_p),
    "chunk_sums": (c_void_p, c_int64, c_void_p),
    "philox_uniform": (c_uint64, c_uint32, c_uint32, c_uint32),
}
_RESULTS: dict[str, Any] = {
    "use": c_bool,
    "struct_bytes": c_int64,
    "items": c_int64,
    "partial_floats": c_int64,
    "scratch_bytes": c_int64,
    "sample_bytes": c_int64,
    "philox_uniform": c_double,
}


class Kernels:
    """The functions of csrc/tests/attention_test_abi.cpp.

    Args:
        library: the compiled library.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        for name in {*_ARGUMENTS, *_RESULTS}:
            function = getattr(self._library, name)
            function.argtypes = _ARGUMENTS.get(name, ())
            function.restype = _RESULTS.get(name)
        for index, structure in enumerate(STRUCTURES):
            size = self._library.struct_bytes(index)
            assert ctypes.sizeof(structure) == size, f"{structure.__name__} has {size} bytes in C++"

    def supports(self, isa: Isa) -> bool:
        """Whether this processor can run an instruction set."""
        return bool(self._library.use(_NUMBERS[isa]))

    @property
    def isas(self) -> list[Isa]:
        """The instruction sets that this processor can run."""
        return [isa for isa in _NUMBERS if self.supports(isa)]

    def call(self, isa: Isa, name: str, *args: Any) -> Any:
        """Call the body of `name` for an instruction set; arrays become their addresses."""
        assert self._library.use(_NUMBERS[isa]), f"this processor has no {isa}"
        converted = [self._convert(arg) for arg in args]
        return getattr(self._library, name)(*converted)

    @staticmethod
    def _convert(arg: Any) -> Any:
        if isinstance(arg, np.ndarray):
            return pointer(arg)
        return ctypes.addressof(arg) if isinstance(arg, ctypes.Structure) else arg


def extra_flags() -> list[str]:
    """What the environment asks for besides, such as sanitizers (scripts/sanitize)."""
    return os.environ.get("CXXFLAGS", "").split()


def build(folder: Path) -> tuple[Path, dict[str, Path]]:
    """Compile the kernels.

    Args:
        folder: where objects and library go.

    Returns:
        The library, and the object of each unit.
    """
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"

    def compile_unit(unit: str) -> Path:
        target = folder / (unit.replace("/", "_") + ".o")
        isa_flags = ISA_FLAGS.get(Path(unit).name.split("_")[0], [])
        command = [
            compiler,
            *FLAGS,
            *extra_flags(),
            *isa_flags,
            f"-I{CSRC}",
            "-c",
            str(CSRC / unit),
        ]
        subprocess.run([*command, "-o", str(target)], check=True)
        return target

    with ThreadPoolExecutor(2) as pool:
        objects = dict(zip(UNITS, pool.map(compile_unit, UNITS), strict=True))
    library = folder / "kernels.so"
    linked = map(str, objects.values())
    subprocess.run([compiler, *extra_flags(), "-shared", *linked, "-o", str(library)], check=True)
    return library, objects
