"""Runs engines round by round on one model, and sets their medians side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.peers.engine import Engine, EngineFailedError
from firstword.bench.cases import Case
from firstword.bench.machine import load_average

Pick = Callable[[Sequence[float]], float]

_OWN_LOAD = 0.5
"""Load average beyond the engines' own threads that is nothing to speak of."""


@dataclass
class EngineResult:
    """What one engine gave.

    Args:
        name: the engine and its setting.
        version: its release.
        speeds: per case, tokens per second of each round.
        details: of each round.
        error: why it was left out, if it was.
    """

    name: str
    version: str
    speeds: dict[Case, list[float]] = field(default_factory=lambda: defaultdict(list))
    details: list[dict[str, object]] = field(default_factory=list)
    error: str | None = None


@dataclass
class Comparison:
    """All engines on one model.

    Args:
        model: the file.
        threads: each computed with.
        cases: the rows of the table.
        engines: the first one is ours.
        load_averages: before each round.
    """

    model: Path
    threads: int
    cases: tuple[Case, ...]
    engines: list[EngineResult]
    load_averages: list[float | None] = field(default_factory=list)

    def best_peer(self, case: Case, of: Pick = median) -> tuple[str, float] | None:
        """The peer with the highest speed, in whatever setting, and that speed.

        Args:
            case: the row.
            of: makes one speed of an engine's rounds.
        """
        speeds = [(of(e.speeds[case]), e.name) for e in self.engines[1:] if e.speeds.get(case)]
        if not speeds:
            return None
        speed, name = max(speeds)
        return name, speed

    def ratio(self, case: Case, of: Pick = median) -> float | None:
        """Our speed over the best peer's."""
        best, ours = self.best_peer(case, of), self.engines[0].speeds.get(case)
        return of(ours) / best[1] if best and ours else None

    @property
    def is_busy(self) -> bool:
        """Whether other programs wanted the processor: then no speed is that of the engine."""
        known = [load for load in self.load_averages if load is not None]
        return bool(known) and median(known) > self.threads + _OWN_LOAD


def compare(
    engines: Sequence[Engine],
    model: Path,
    cases: Sequence[Case],
    *,
    threads: int,
    rounds: int,
    progress: Callable[[str], None],
) -> Comparison:
    """Run each engine once per round; who goes first changes with the round.

    An engine that fails is left out from then on, and says why.
    """
    results = {engine.name: EngineResult(engine.name, engine.version) for engine in engines}
    comparison = Comparison(model, threads, tuple(cases), list(results.values()))
    for number in range(rounds):
        comparison.load_averages.append(load_average())
        shift = number % len(engines)
        for engine in [*engines[shift:], *engines[:shift]]:
            result = results[engine.name]
            if result.error is None:
                progress(f"{model.name}: round {number + 1} of {rounds}: {engine.name}")
                _measure(engine, result, comparison)
    return comparison


def _measure(engine: Engine, result: EngineResult, comparison: Comparison) -> None:
    try:
        measured = engine.measure(comparison.model, comparison.cases, comparison.threads)
    except EngineFailedError as error:
        result.error = str(error)
        return
    for case, speed in measured.speeds.items():
        result.speeds[case].append(speed)
    result.details.append(dict(measured.details))


def install(engines: Sequence[Engine]) -> list[Engine]:
    """The engines that can be installed; the others' reasons are printed."""
    ready = []
    for engine in engines:
        try:
            engine.install()
            ready.append(engine)
        except EngineFailedError as error:
            print(f"{engine.name} is left out: {error}")
    return ready
