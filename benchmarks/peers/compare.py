"""Runs engines round by round on the rows of one model, each loaded once for all rounds.

Not here: which engines and settings (choices) and what comes of the numbers (results).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from benchmarks.peers.engine import Engine
from benchmarks.peers.results import EngineResult, RowResult
from benchmarks.peers.rows import Row
from benchmarks.peers.session import EngineFailedError, Job, Session
from firstword.bench.cases import Case
from firstword.bench.machine import Limits, limits, load_average

Progress = Callable[[str], None]
Contenders = Mapping[str, Sequence[Engine]]
"""Engines by row id; ours is the first of each row."""

_SETTLE_SECONDS = 0.05
"""Threads of an engine that has just answered may still spin for a moment."""
_WARM_UP_TOKENS = 128


@dataclass(frozen=True)
class Plan:
    """How rows are measured.

    Args:
        threads: each engine computes with.
        rounds: of each row.
        progress: told what happens.
        measure_limits: takes threads; what the machine allows.
    """

    threads: int
    rounds: int
    progress: Progress
    measure_limits: Callable[[int], Limits] = lambda threads: limits(threads, "native")

    def without_limits(self) -> Plan:
        """The same, for speeds that are only compared with each other."""
        return replace(self, measure_limits=lambda threads: Limits(0.0, None))


@dataclass
class Sessions:
    """Engines that are loaded for one job; one that fails is not tried again."""

    job: Job
    open_ones: dict[tuple[str, str], Session] = field(default_factory=dict)
    errors: dict[tuple[str, str], str] = field(default_factory=dict)

    def get(self, engine: Engine) -> Session:
        """The engine's session, which is opened the first time.

        Raises:
            EngineFailedError: it failed, now or before.
        """
        key = engine.name, engine.setting
        if key in self.errors:
            raise EngineFailedError(self.errors[key])
        if key not in self.open_ones:
            try:
                self.open_ones[key] = engine.open(self.job)
            except EngineFailedError as error:
                self.errors[key] = str(error)
                raise
        return self.open_ones[key]

    def fail(self, engine: Engine, reason: str) -> None:
        """End an engine that has failed."""
        key = engine.name, engine.setting
        self.errors[key] = reason
        if key in self.open_ones:
            self.open_ones.pop(key).close()

    def close(self) -> None:
        """End all processes."""
        for session in self.open_ones.values():
            session.close()
        self.open_ones.clear()


def compare(
    rows: Sequence[Row], model: Path, contenders: Contenders, plan: Plan, text: Path | None = None
) -> Iterator[RowResult]:
    """Measure the rows of one model; each is yielded when it is done.

    Args:
        rows: all of one model.
        model: its file.
        contenders: by row id.
        plan: threads and rounds.
        text: token ids for the rows with a text.
    """
    for job, group in _jobs(rows, model, plan.threads, text):
        with _sessions(job) as sessions:
            for row in group:
                yield _measure(row, contenders[row.id], sessions, plan)


@contextmanager
def _sessions(job: Job) -> Iterator[Sessions]:
    sessions = Sessions(job)
    try:
        yield sessions
    finally:
        sessions.close()


def _jobs(
    rows: Sequence[Row], model: Path, threads: int, text: Path | None
) -> Iterator[tuple[Job, list[Row]]]:
    """Rows that the same loaded engines can run."""

    def kind(row: Row) -> tuple[int, bool]:
        return row.case.batch, row.text

    for (batch, has_text), members in groupby(sorted(rows, key=kind), kind):
        group = list(members)
        context = max(row.case.context for row in group)
        yield Job(model, threads, context, batch, text if has_text else None), group


def _measure(row: Row, engines: Sequence[Engine], sessions: Sessions, plan: Plan) -> RowResult:
    able = [engine for engine in engines if engine.can_run(row.case)]
    found = [EngineResult(engine.name, engine.setting, engine.version) for engine in able]
    began = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    result = RowResult(row.id, sessions.job.model.name, plan.threads, began, found)
    pairs = list(zip(able, found, strict=True))
    for engine, its in pairs:
        plan.progress(f"{row.id}: warming up {_title(engine)}")
        _time(engine, its, warm_up(row.case), sessions)
        its.speeds.clear()
    before = plan.measure_limits(plan.threads)
    for number in range(plan.rounds):
        result.load_averages.append(load_average())
        for engine, its in _rotated(pairs, number):
            if its.error is None:
                time.sleep(_SETTLE_SECONDS)
                _time(engine, its, row.case, sessions)
                plan.progress(f"{row.id}: {number + 1} of {plan.rounds}: {_said(engine, its)}")
    machine = before.best(plan.measure_limits(plan.threads))
    result.read_bandwidth = machine.read_bandwidth
    if machine.mac_rates is not None:
        result.narrow_rate, result.wide_rate = machine.mac_rates.narrow, machine.mac_rates.wide
    return result


def warm_up(case: Case) -> Case:
    """A shorter case of the same kind; what lies before it is read, and kept.

    Several sequences whose prompts are read one after the other need the whole case to meet.
    """
    if case.batch > 1:
        return case
    if case.kind == "decode":
        return replace(case, num_tokens=min(case.num_tokens, 4))
    return replace(case, num_tokens=min(case.num_tokens, _WARM_UP_TOKENS))


def _time(engine: Engine, result: EngineResult, case: Case, sessions: Sessions) -> None:
    try:
        session = sessions.get(engine)
        timing = session.time(case)
    except EngineFailedError as error:
        result.error = without_folders(str(error))
        sessions.fail(engine, result.error)
        return
    result.speeds.append(timing.speed)
    result.details = dict(timing.details)
    result.memory = session.memory()


def without_folders(text: str) -> str:
    """A message with the names of files, and not where they lie."""
    return re.sub(r"(?<![\w/])/(?:[^\s/:'\"]+/)+", "", text)


def _rotated(
    pairs: Sequence[tuple[Engine, EngineResult]], number: int
) -> Iterable[tuple[Engine, EngineResult]]:
    """Who goes first changes with the round."""
    shift = number % max(len(pairs), 1)
    return [*pairs[shift:], *pairs[:shift]]


def _title(engine: Engine) -> str:
    return f"{engine.name}, {engine.setting}" if engine.setting else engine.name


def _said(engine: Engine, result: EngineResult) -> str:
    if result.error is not None:
        return f"{_title(engine)} failed: {result.error.splitlines()[-1]}"
    return f"{_title(engine)} {result.speeds[-1]:.1f} tokens/s"
