"""What is kept of prompts, measured: restarts, the cost of writing, agents, explained misses.

    python -m benchmarks.kv agents
    python -m benchmarks.kv restart --cases gemma3:270m=30000

Not here: crashes and damaged files (endurance).
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.kv import agents, misses, overhead, restart
from benchmarks.kv.results import RESULTS, Findings
from firstword.plan.hardware import usable_cores


class Experiment(NamedTuple):
    """What the command line offers.

    Args:
        title: in words.
        add_arguments: its options.
        measure: runs it.
    """

    title: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    measure: Callable[[argparse.Namespace], Findings]


EXPERIMENTS: Mapping[str, Experiment] = {
    "restart": Experiment(
        "the first word before and after a restart", restart.add_arguments, restart.measure
    ),
    "overhead": Experiment(
        "decoding with blocks written to the disk, and without",
        overhead.add_arguments,
        overhead.measure,
    ),
    "agents": Experiment(
        "a trace of agents' turns, and llama-server's time for it",
        agents.add_arguments,
        agents.measure,
    ),
    "misses": Experiment("planted misses", misses.add_arguments, misses.measure),
}


def main() -> None:
    """Run the experiment that the command line names; status 1 where a goal is missed."""
    options = parse_arguments(sys.argv[1:])
    # A request to end ends this program in the usual way, and the servers with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    found = EXPERIMENTS[options.experiment].measure(options)
    day = options.day or f"{datetime.now(UTC):%Y-%m-%d}"
    print(found.write(options.out, day, options.name))
    sys.exit(0 if found.is_met else 1)


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """The command line's words."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser("python -m benchmarks.kv", description=__doc__.split("\n")[0])
    subparsers = parser.add_subparsers(dest="experiment", required=True)
    for name, experiment in EXPERIMENTS.items():
        own = subparsers.add_parser(name, help=experiment.title, description=experiment.title)
        experiment.add_arguments(own)
        add = own.add_argument
        add("--threads", type=int, default=usable_cores().count)
        add("--out", type=Path, default=RESULTS, help="folder of the results")
        add("--name", help="of the results' files, after the day (kv and the experiment's)")
        add("--day", help="in their names (today)")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
