"""Checks what a server lives through; every line says what was found, and whether that will do.

    python -m benchmarks.endurance                       all of them
    python -m benchmarks.endurance kills --model gemma3:270m

Not here: load for half an hour (soak).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping

from benchmarks.endurance.cancel import cancel
from benchmarks.endurance.drain import drain
from benchmarks.endurance.kills import kills
from benchmarks.endurance.pressure import pressure
from benchmarks.endurance.report import Report
from benchmarks.endurance.restart import restart

CHECKS: Mapping[str, Callable[[Report, str], Awaitable[None]]] = {
    "pressure": pressure,
    "kills": kills,
    "cancel": cancel,
    "drain": drain,
    "restart": restart,
}


async def run(names: list[str], model: str) -> int:
    """Run checks; returns how many findings fall short."""
    report = Report()
    for name in names:
        await CHECKS[name](report, model)
    return report.num_missed


def main() -> None:
    """Run the checks that the command line names."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checks", nargs="*", help=f"of {', '.join(CHECKS)}; all if none is named")
    parser.add_argument("--model", default="smollm2:135m", help="a name or a file")
    arguments = parser.parse_args()
    unknown = set(arguments.checks) - set(CHECKS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(CHECKS)}")
    num_missed = asyncio.run(run(arguments.checks or list(CHECKS), arguments.model))
    sys.exit(1 if num_missed else 0)


if __name__ == "__main__":
    main()
