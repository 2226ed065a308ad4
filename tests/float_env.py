"""The caller's floating-point environment, as another library may have left it.

Not here: the environment that the compiled module computes in (csrc/core/float_env.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

FLUSH = 0x8040
"""In x86's MXCSR: results that are subnormal become zero (FTZ), and so do such inputs (DAZ)."""

_MXCSR_OFFSET = 28  # in glibc's fenv_t on x86-64
_libm = ctypes.CDLL("libm.so.6")


def control_word() -> int:
    """MXCSR of this thread."""
    environment = ctypes.create_string_buffer(64)
    _libm.fegetenv(environment)
    return int.from_bytes(environment.raw[_MXCSR_OFFSET : _MXCSR_OFFSET + 4], "little")


@contextmanager
def flush_to_zero() -> Iterator[None]:
    """Set FTZ and DAZ in this thread."""
    before, changed = (ctypes.create_string_buffer(64) for _ in range(2))
    _libm.fegetenv(before)
    raw = bytearray(before.raw)
    word = control_word() | FLUSH
    raw[_MXCSR_OFFSET : _MXCSR_OFFSET + 4] = word.to_bytes(4, "little")
    changed.raw = bytes(raw)
    _libm.fesetenv(changed)
    try:
        yield
    finally:
        _libm.fesetenv(before)
