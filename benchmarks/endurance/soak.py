"""Mixed load for a long time: is memory flat, does nothing fail, do latencies stay?

python -m benchmarks.endurance.soak 30
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endurance.mixture import Mixture, Tally
from benchmarks.endurance.processes import Footprint
from benchmarks.endurance.report import Report
from benchmarks.endurance.served import Served
from firstword.bench.serving.exchange import Exchange
from firstword.bench.serving.statistics import percentile

_KEYS = ("soak-key-one", "soak-key-two")
_WORKERS = 6
_MIN_ROWS = 9
_LONGEST_ROW = 60.0
_SHOWN_ERRORS = 20

FLAT_SHARE, FLAT_BYTES = 0.03, 12e6
"""Memory that is flat: the last third's mean is above the middle's by no more than the greater."""

DRIFT = 1.25
"""Latency that does not drift: medians of the last third over those of the first, at most."""


@dataclass(frozen=True)
class Row:
    """A stretch of the load.

    Args:
        num_requests: begun so far.
        num_errors: so far.
        footprints: of the HTTP process and the engine's, at its end.
        ttft, itl: (p50, p95) in seconds of the chats that ended in it.
    """

    num_requests: int
    num_errors: int
    footprints: tuple[Footprint, Footprint]
    ttft: tuple[float, float]
    itl: tuple[float, float]

    def __str__(self) -> str:
        http, engine = self.footprints
        ttft, itl = (
            "/".join(f"{value * 1e3:.0f}" for value in pair) for pair in (self.ttft, self.itl)
        )
        return (
            f"{self.num_requests:6} requests, {self.num_errors} errors | HTTP {http} | "
            f"engine {engine} | TTFT p50/p95 {ttft} ms | ITL {itl} ms"
        )


def row_of(tally: Tally, pids: tuple[int, int]) -> Row:
    """The row that ends now; the tally's exchanges are taken."""
    exchanges, tally.exchanges = tally.exchanges, []
    http, engine = (Footprint.of(pid) for pid in pids)
    return Row(
        tally.num_requests,
        len(tally.errors),
        (http, engine),
        _both(_ttfts(exchanges)),
        _both([gap for exchange in exchanges for gap in exchange.gaps]),
    )


def _ttfts(exchanges: Sequence[Exchange]) -> list[float]:
    return [exchange.ttft for exchange in exchanges if exchange.ttft is not None]


def _both(values: Sequence[float]) -> tuple[float, float]:
    return (percentile(values, 0.5), percentile(values, 0.95)) if values else (0.0, 0.0)


def judge(report: Report, rows: Sequence[Row]) -> None:
    """Say what a load showed.

    Args:
        report: receives the findings.
        rows: at least three, of equal length; the first third also warms everything up, so that
            memory is compared between the other two.
    """
    third = len(rows) // 3
    first, middle, last = rows[:third], rows[third:-third], rows[-third:]
    errors = rows[-1].num_errors
    report.check(errors == 0, f"soak: {errors} errors in {rows[-1].num_requests} requests")
    for index, name in enumerate(("HTTP", "engine")):
        before, after = (
            _mean([row.footprints[index].rss for row in part]) for part in (middle, last)
        )
        is_flat = after - before <= max(FLAT_SHARE * before, FLAT_BYTES)
        text = f"{before / 1e6:.0f} MB in the middle third, {after / 1e6:.0f} MB in the last"
        report.check(is_flat, f"soak: {name} process, {text}")
        fds = [_mean([row.footprints[index].fds for row in part]) for part in (middle, last)]
        threads = {row.footprints[index].threads for row in (*middle, *last)}
        text = f"{fds[0]:.0f} and {fds[1]:.0f} files, {min(threads)} to {max(threads)} threads"
        report.check(fds[1] <= fds[0] + _WORKERS, f"soak: {name} process, {text}")
    for name in ("ttft", "itl"):
        before, after = (_mean([getattr(row, name)[0] for row in part]) for part in (first, last))
        text = f"{before * 1e3:.0f} ms in the first third, {after * 1e3:.0f} ms in the last"
        report.check(after <= DRIFT * before, f"soak: {name.upper()} p50, {text}")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


async def soak(report: Report, model: str, seconds: float, seed: int) -> None:
    """Load a server and print a row again and again, then the verdict."""
    tally, rows = Tally(), list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        keys.write_text("".join(f"key{i}:{key}\n" for i, key in enumerate(_KEYS)))
        flags = ("--context", "2048", "--memory", "900M", "--api-key-file", str(keys))
        with Served(model, *flags, "--open-metrics") as served:
            mixture = Mixture(served, _KEYS, seed, tally)
            length = min(seconds / _MIN_ROWS, _LONGEST_ROW)
            workers = [asyncio.create_task(_work(mixture)) for _ in range(_WORKERS)]
            begin = time.monotonic()
            for index in range(round(seconds / length)):
                await asyncio.sleep(begin + (index + 1) * length - time.monotonic())
                rows.append(row_of(tally, served.pids))
                report.say(f"{(index + 1) * length:5.0f} s {rows[-1]}")
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            report.check("Traceback" not in served.log(), "soak: no exception in the log")
    for error in tally.errors[:_SHOWN_ERRORS]:
        report.say(error[:300])
    judge(report, rows)


async def _work(mixture: Mixture) -> None:
    while True:
        await mixture.one()


def main() -> None:
    """Run the load that the command line describes."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("minutes", nargs="?", type=float, default=30.0)
    parser.add_argument("--model", default="smollm2:135m", help="a name or a file")
    parser.add_argument("--seed", type=int, default=1, help="of what is sent")
    arguments = parser.parse_args()
    report = Report()
    asyncio.run(soak(report, arguments.model, arguments.minutes * 60, arguments.seed))
    sys.exit(1 if report.num_missed else 0)


if __name__ == "__main__":
    main()
