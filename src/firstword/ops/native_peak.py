"""What the processor's arithmetic could do at most: a yardstick for benchmarks, no kernel."""

from __future__ import annotations

from dataclasses import dataclass

from firstword.quant import GGMLType

NARROW_TYPES = frozenset(
    {
        GGMLType.Q4_0,
        GGMLType.Q4_1,
        GGMLType.Q5_0,
        GGMLType.Q5_1,
        GGMLType.Q4_K,
        GGMLType.Q5_K,
    }
)
"""Types with codes of at most 5 bits: sums of two products fit 16 bits, which AVX2 gains from."""


@dataclass(frozen=True)
class MacRates:
    """Multiply-adds per second of all threads together, with everything in registers.

    Args:
        narrow: of the `NARROW_TYPES` with int8 activations.
        wide: of all others.
    """

    narrow: float
    wide: float

    def seconds(self, macs: float, narrow_macs: float) -> float:
        """The least time for so many multiply-adds, `narrow_macs` of them with narrow types."""
        return narrow_macs / self.narrow + (macs - narrow_macs) / self.wide


def mac_rates(num_threads: int, isa: str = "") -> MacRates | None:
    """Measure them, which takes a tenth of a second.

    Args:
        num_threads: at least 1.
        isa: as `NativeOps` takes it.

    Returns:
        None for an instruction set without vectors.

    Raises:
        ConfigError: the instruction set is not built or does not run here.
    """
    # Not every installation has the compiled module; the report of a benchmark needs none.
    from firstword.ops.native import NativeOps

    backend = NativeOps(num_threads, isa).backend
    narrow, wide = backend.mac_rate(wide=False), backend.mac_rate(wide=True)
    return MacRates(narrow, wide) if narrow and wide else None
