"""What writing blocks to the disk costs those who compute them: pairs of runs, with and without.

Each run is a process of its own (decode), so that luck with memory's layout falls on both sides;
who goes first changes with the pair. Both read the same prompts, which no run has read before. With
--one-process requests of one process take turns instead, with prompts of their own: a machine whose
speed drifts does so less between them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.kv.decode import Run
from benchmarks.kv.homes import KV_FOLDER, clean_home
from benchmarks.kv.results import Findings, Goal, Table
from benchmarks.peers.models import find

_GIB = 2**30
_LIMIT = 0.98
_RESAMPLES = 10_000
_DISK_BYTES = 10 * 10**9


@dataclass(frozen=True)
class Pair:
    """Two runs with the same prompts, one after the other.

    Args:
        writing: with blocks kept on the disk.
        without: with none.
        written: bytes on the disk afterwards.
    """

    writing: Run
    without: Run
    written: int


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians, and the interval that 95 of 100 resamples of the pairs fall in.

    Args:
        value: of all pairs.
        low, high: bounds of the interval.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def bootstrap(pairs: Sequence[tuple[float, float]], resamples: int = _RESAMPLES) -> Ratio:
    """The ratio of medians of the first to the second (percentile bootstrap, Efron 1979).

    Args:
        pairs: of values measured together; drawn together.
        resamples: how often.
    """

    def ratio(of: Sequence[tuple[float, float]]) -> float:
        return median(first for first, _ in of) / median(second for _, second in of)

    drawn = random.Random(0)
    found = sorted(ratio(drawn.choices(pairs, k=len(pairs))) for _ in range(resamples))
    tail = resamples // 40
    return Ratio(ratio(pairs), found[tail], found[-1 - tail])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The experiment's own options."""
    add = parser.add_argument
    add("--model", default="1b:q4_0", help="of the catalogue, a file, or 1b:q4_0 and so on")
    add("--pairs", type=int, default=30)
    add("--memory", type=float, default=2.0, help="GiB of each process")
    add("--prompt", type=int, default=512, help="tokens of each prompt")
    add("--generate", type=int, default=384, help="tokens of each answer")
    add("--batch", type=int, default=1, help="sequences at once")
    add("--one-process", action="store_true", help="requests take turns to be kept on the disk")


def measure(options: argparse.Namespace) -> Findings:
    """Run the pairs."""
    model = find(options.model)
    pairs = []
    for pair in (_pairs_of_one_process if options.one_process else _pairs)(model, options):
        pairs.append(pair)
        print(_line(len(pairs), pair), file=sys.stderr, flush=True)
    budget = options.memory * _GIB
    ratios = {
        name: bootstrap([(getattr(p.writing, name), getattr(p.without, name)) for p in pairs])
        for name in ("decode", "prefill")
    }
    peak = max(pair.writing.peak_bytes for pair in pairs)
    goals = [
        Goal("decode, writing over without", ratios["decode"].value, _LIMIT, at_least=True),
        Goal("peak memory over the budget", peak / budget, 1.0),
    ]
    title = (
        f"{options.model}, {options.batch} x {options.prompt} tokens read and "
        f"{options.generate} written, {options.pairs} pairs"
    )
    if options.one_process:
        title += " in one process"
    details = {"ratios": {name: asdict(ratio) for name, ratio in ratios.items()}}
    table = _table(pairs, ratios)
    fields = {**details, "pairs": [asdict(pair) for pair in pairs]}
    return Findings("overhead", f"Writing blocks: {title}", goals, [table], fields)


def _pairs(model: Path, options: argparse.Namespace) -> Iterator[Pair]:
    for number in range(options.pairs):
        runs = {}
        written = 0
        for disk in (_DISK_BYTES, 0) if number % 2 else (0, _DISK_BYTES):
            with clean_home() as home:
                (runs[disk],) = _runs(model, home, options, disk=disk, seed=number)
                written = written or _num_written(home)
        yield Pair(runs[_DISK_BYTES], runs[0], written)


def _pairs_of_one_process(model: Path, options: argparse.Namespace) -> Iterator[Pair]:
    with clean_home() as home:
        runs = _runs(model, home, options, disk=_DISK_BYTES, alternate=options.pairs)
        written = _num_written(home) // options.pairs
    for writing, without in zip(runs[::2], runs[1::2], strict=True):
        yield Pair(writing, without, written)


def _num_written(home: Path) -> int:
    return sum(f.stat().st_size for f in (home / KV_FOLDER).rglob("*.kv"))


def _runs(model: Path, home: Path, options: argparse.Namespace, **further: int) -> list[Run]:
    sizes = {name: getattr(options, name) for name in ("prompt", "generate", "batch", "threads")}
    words = {**sizes, **further, "memory": round(options.memory * _GIB)}
    flags = [text for name, value in words.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "benchmarks.kv.decode", str(model), *flags]
    environment = {**os.environ, "FIRSTWORD_HOME": str(home)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return [Run(**measured) for measured in json.loads(done.stdout)]


def _line(number: int, pair: Pair) -> str:
    writing, without = pair.writing, pair.without
    return (
        f"{number}: decode {writing.decode:.1f} and {without.decode:.1f} tokens/s, prefill "
        f"{writing.prefill:.0f} and {without.prefill:.0f}, {pair.written / 1e6:.0f} MB written"
    )


def _table(pairs: Sequence[Pair], ratios: dict[str, Ratio]) -> Table:
    rows = [
        (
            name,
            median(getattr(pair.writing, name) for pair in pairs),
            median(getattr(pair.without, name) for pair in pairs),
            str(ratio),
        )
        for name, ratio in ratios.items()
    ]
    columns = ["tokens/s", "writing", "without", "ratio of medians (95% interval)"]
    written = median(pair.written for pair in pairs) / 1e6
    peaks = [max(getattr(pair, name).peak_bytes for pair in pairs) / 1e6 for name in _SIDES]
    notes = [
        f"{written:,.0f} MB written in each run. Most memory of a process, mapped files included: "
        f"{peaks[0]:,.0f} MB writing, {peaks[1]:,.0f} MB without.",
        "The order changes with the pair.",
    ]
    return Table("Speed", columns, rows, notes)


_SIDES = ("writing", "without")
