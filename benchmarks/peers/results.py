"""Measured rows as values, and the file that keeps them. Not here: how they look (tables)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers.rows import Goal, LimitKind, Row
from benchmarks.peers.session import Memory

FORMAT = 2
_OWN_LOAD = 0.5
"""Load average beyond the engines' own threads that is nothing to speak of."""
_MEMORY_FREE = 200 * 10**6
_MEMORY_SHARE = 1.05

Pick = Callable[[Sequence[float]], float]


@dataclass
class EngineResult:
    """What one engine gave in one row.

    Args:
        name, setting, version: the engine.
        speeds: tokens per second of each round.
        details: of the last round.
        memory: of its process after the last round.
        error: why it was left out, if it was.
    """

    name: str
    setting: str
    version: str
    speeds: list[float] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    memory: Memory | None = None
    error: str | None = None


@dataclass
class RowResult:
    """All engines on one row.

    Args:
        row: its id.
        file: name of the model's file.
        threads: each computed with.
        time: when it began, in UTC.
        engines: the first one is ours.
        read_bandwidth: bytes per second, the best measured before and after.
        narrow_rate, wide_rate: multiply-adds per second (`MacRates`); 0 where not known.
        load_averages: before each round.
    """

    row: str
    file: str
    threads: int
    time: str
    engines: list[EngineResult]
    read_bandwidth: float = 0.0
    narrow_rate: float = 0.0
    wide_rate: float = 0.0
    load_averages: list[float | None] = field(default_factory=list)

    @property
    def ours(self) -> EngineResult:
        """This repository's engine."""
        return self.engines[0]

    def best_peer(self, goal: Goal, of: Pick = median) -> EngineResult | None:
        """The peer with the highest speed among those that count.

        Args:
            goal: says which count.
            of: makes one speed of an engine's rounds.
        """
        peers = [e for e in self.engines[1:] if e.speeds and e.error is None]
        counted = [e for e in peers if not goal.peers or e.name in goal.peers]
        return max(counted, key=lambda e: of(e.speeds), default=None)

    def ratio(self, goal: Goal, of: Pick = median) -> float | None:
        """Our speed over the best peer's."""
        best = self.best_peer(goal, of)
        return of(self.ours.speeds) / of(best.speeds) if best and self.ours.speeds else None

    def limit(self, kind: LimitKind) -> float | None:
        """Tokens per second that the machine allows; None where that is not known."""
        work = self.ours.details
        if not self.ours.speeds or "num_bytes" not in work:
            return None
        tokens = float(work["tokens"]) / float(work["steps"])
        if kind == "memory":
            return tokens * self.read_bandwidth / float(work["num_bytes"])
        if not self.narrow_rate or not self.wide_rate:
            return None
        wide = work["linear_macs"] - work["narrow_macs"]
        seconds = work["narrow_macs"] / self.narrow_rate + wide / self.wide_rate
        return tokens / float(seconds)

    def share(self, row: Row, of: Pick = median) -> float | None:
        """Our speed over the limit."""
        limit = self.limit(row.limit)
        return of(self.ours.speeds) / limit if limit else None

    @property
    def is_busy(self) -> bool:
        """Whether other programs wanted the processor: then no speed is that of the engine."""
        known = [load for load in self.load_averages if load is not None]
        return bool(known) and median(known) > self.threads + _OWN_LOAD

    @property
    def memory_allowed(self) -> int | None:
        """Bytes that our process may take: 5% above weights, KV pool and 200 MB."""
        planned = self.ours.details
        if "weight_bytes" not in planned:
            return None
        needed = planned["weight_bytes"] + planned["kv_bytes"] + _MEMORY_FREE
        return int(_MEMORY_SHARE * needed)


@dataclass
class Results:
    """A file of results; rows measured again replace those of before.

    Args:
        machine: its description, of the latest run.
        rows: by id, in the order they were first measured.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, RowResult] = field(default_factory=dict)

    def add(self, result: RowResult) -> None:
        """Keep a row."""
        self.rows[result.row] = result

    def save(self, path: Path) -> None:
        """Write the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [asdict(row) for row in self.rows.values()]
        report = {"format": FORMAT, "machine": self.machine, "rows": rows}
        path.write_text(json.dumps(report, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read a file; one that is not there, or has another format, is empty."""
        if not path.is_file():
            return cls()
        report = json.loads(path.read_text())
        if report.get("format") != FORMAT:
            return cls()
        results = cls(report["machine"])
        for entry in report["rows"]:
            engines = [_engine(engine) for engine in entry.pop("engines")]
            results.add(RowResult(engines=engines, **entry))
        return results


def _engine(entry: dict[str, Any]) -> EngineResult:
    memory = entry.pop("memory")
    return EngineResult(memory=Memory(**memory) if memory else None, **entry)
