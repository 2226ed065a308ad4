"""Engines that measure nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.engine import EngineFailedError, Measured
from firstword.bench.cases import Case


@dataclass
class Rival:
    """Gives speeds in turn, and fails where there is none."""

    name: str
    speeds: list[float] = field(default_factory=list)
    version: str = "1"
    calls: list[str] = field(default_factory=list)
    installs: bool = True

    def install(self) -> None:
        if not self.installs:
            raise EngineFailedError("no compiler")

    def measure(self, model: Path, cases: Sequence[Case], threads: int) -> Measured:
        self.calls.append(self.name)
        if not self.speeds:
            raise EngineFailedError("many words\nit does not load this file")
        speed = self.speeds.pop(0)
        details = {case.label: {"share_of_limit": 0.5} for case in cases}
        return Measured({case: speed for case in cases}, {**details, "backend": "native (avx2)"})
