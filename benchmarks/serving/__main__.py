"""Compares our server with others under the same load.

    python -m benchmarks.serving --model smollm2:135m --rounds 5
    python -m benchmarks.serving --servers llama.cpp --experiments many --rounds 1

Servers are started once, side by side, and take turns. Results go to benchmarks/results as JSON
and as a page, after each experiment.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from benchmarks.peers.models import find
from benchmarks.peers.session import EngineFailedError
from benchmarks.serving.checks import ENGINE
from benchmarks.serving.compare import Comparison, Endpoint, Results
from benchmarks.serving.engine_rate import engine_rate
from benchmarks.serving.experiments import BY_NAME, Experiment
from benchmarks.serving.servers import (
    FirstwordServer,
    Launch,
    LlamaServer,
    RunningServer,
    Server,
    free_port,
)
from benchmarks.serving.tables import markdown
from firstword.bench.machine import fingerprint
from firstword.plan.hardware import usable_cores

RESULTS = Path(__file__).parents[1] / "results"
SERVERS: Mapping[str, Server] = {
    server.name: server for server in (FirstwordServer(), LlamaServer())
}
Value = TypeVar("Value")
API_KEYS = ("benchmark-key-one", "benchmark-key-two")


def progress(text: str) -> None:
    """Say what happens now."""
    print(text, file=sys.stderr, flush=True)


def chosen(names: str, known: Mapping[str, Value]) -> list[Value]:
    """The values with these names.

    Raises:
        ValueError: there is none of that name.
    """
    words = [word for word in names.split(",") if word]
    for word in words:
        if word not in known:
            raise ValueError(f"there is no {word!r}: choose from {', '.join(known)}")
    return [known[word] for word in words]


def start(
    servers: Sequence[Server], model: Path, threads: int, results: Results, stack: ExitStack
) -> list[Endpoint]:
    """Start the servers that can be; the others are problems of the results."""
    keys = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "keys"
    keys.write_text("".join(f"{key}\n" for key in API_KEYS))
    endpoints = []
    for server in servers:
        progress(f"starting {server.name}")
        try:
            server.install()
            launch = Launch(model, free_port(), keys, threads)
            running = stack.enter_context(RunningServer(server, launch))
        except EngineFailedError as error:
            results.problems.append(str(error))
            progress(str(error))
            continue
        results.versions[server.name] = server.version
        endpoints.append(Endpoint(server.name, running.url, API_KEYS))
    return endpoints


def write(results: Results, folder: Path, day: str, name: str) -> str:
    """Write both files; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = markdown(results, day)
    (folder / f"{day}-{name}.json").write_text(json.dumps(results.to_dict(), indent=1) + "\n")
    (folder / f"{day}-{name}.md").write_text(page)
    return page


def measure(arguments: argparse.Namespace, experiments: Sequence[Experiment]) -> str:
    """Start the servers, run the experiments, and return the page."""
    results = Results(machine=asdict(fingerprint()))
    day = arguments.day or f"{datetime.now(UTC):%Y-%m-%d}"
    servers = chosen(arguments.servers, SERVERS)
    model = find(arguments.model)
    page = ""
    with ExitStack() as stack:
        endpoints = start(servers, model, arguments.threads, results, stack)
        comparison = Comparison(endpoints, results, progress)
        for experiment in experiments if endpoints else ():
            comparison.run([experiment], arguments.rounds)
            if experiment.name == "many" and arguments.engine:
                sizes = experiment.workloads[0][1]
                rate = engine_rate(model, sizes, arguments.threads, arguments.rounds)
                results.add(experiment.name, ENGINE, {"tokens_per_second": rate})
            page = write(results, arguments.out, day, arguments.name)
    return page or markdown(results, day)


def main() -> None:
    """Run the comparison that the command line describes."""
    arguments = parse_arguments()
    # A request to end ends this program in the usual way, and the servers with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print(measure(arguments, chosen(arguments.experiments, BY_NAME)))


def parse_arguments() -> argparse.Namespace:
    """The command line's words."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--model", default="smollm2:135m", help="of the catalogue, a file, or 1b:q4_0 and so on")
    add("--servers", default=",".join(SERVERS), help=f"of {', '.join(SERVERS)}")
    add("--experiments", default=",".join(BY_NAME), help=f"of {', '.join(BY_NAME)}")
    add("--rounds", type=int, default=5)
    add("--threads", type=int, default=usable_cores().count)
    add("--engine", action=argparse.BooleanOptionalAction, default=True,
        help="also run `firstword bench` at the same sizes")  # fmt: skip
    add("--out", type=Path, default=RESULTS, help="folder of the results")
    add("--name", default="serving", help="of the results' files, after the day")
    add("--day", help="in their names (today)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
