"""Kills, damage and full disks for the KV blocks on the disk: misses, and nothing else.

    python -m benchmarks.kv_crash                        the whole matrix; some minutes
    python -m benchmarks.kv_crash files --scale 0.02     a hundredth of it, the files alone
    python -m benchmarks.kv_crash engines --model gemma3:270m
    python -m benchmarks.kv_crash commands               firstword run and firstword serve

Every line says what was found. The status is 1 if anything falls short.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.endurance.report import Report


def check_files(report: Report, scale: float, seed: int) -> None:
    """The files of a store alone."""
    from benchmarks.kv_crash.files import StoreChecks

    checks = StoreChecks(report, seed)
    checks.kills(_scaled(500, scale))
    checks.kills_in_calls(_scaled(10_000, scale))
    checks.flips(_scaled(200, scale))
    checks.cuts(_scaled(50, scale))
    checks.writers(_scaled(50, scale))
    checks.full_disks(max(round(1 / scale), 1))


def check_engines(report: Report, scale: float, seed: int, model: str) -> None:
    """Engines that answer while they are killed."""
    from benchmarks.kv_crash.engines import EngineChecks

    with EngineChecks(report, seed, model) as checks:
        checks.kills(_scaled(500, scale))
        checks.damage(_scaled(100, scale))
        checks.neighbours(_scaled(20, scale))


def check_commands(report: Report, scale: float, seed: int, model: str) -> None:
    """The commands that users start."""
    from benchmarks.kv_crash.commands import CommandChecks

    with CommandChecks(report, seed, model) as checks:
        checks.runs(_scaled(100, scale))
        checks.servers(_scaled(100, scale))


def _scaled(number: int, scale: float) -> int:
    return max(round(number * scale), 1)


def main() -> None:
    """Run what the command line names."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", help="files, engines, commands; or all")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the matrix, above 0")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--model", default="smollm2:135m", help="a name or a file, for engines and commands"
    )
    arguments = parser.parse_args()
    parts = arguments.parts or ["files", "engines", "commands"]
    report = Report()
    if "files" in parts:
        check_files(report, arguments.scale, arguments.seed)
    if "engines" in parts:
        check_engines(report, arguments.scale, arguments.seed, arguments.model)
    if "commands" in parts:
        check_commands(report, arguments.scale, arguments.seed, arguments.model)
    sys.exit(1 if report.num_missed else 0)


if __name__ == "__main__":
    main()
