"""Experiments on several servers, in turns: rounds go over all servers, and who begins changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from benchmarks.serving.experiments import BY_NAME, Exchanges, Experiment
from firstword.bench.serving.client import Client, Target, resolve_model
from firstword.bench.serving.measure import Measurement

Progress = Callable[[str], None]

WARM_UP = 4
"""Requests that each server answers before the first round."""


@dataclass
class Results:
    """Figures of every round.

    Args:
        machine: its description.
        versions: of the servers, by name, ours first.
        rounds: by experiment, then by server: one set of figures per round that worked.
        problems: what did not work, by experiment and server.
    """

    machine: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, experiment: str, server: str, figures: Mapping[str, float]) -> None:
        """Keep a round's figures."""
        of_server = self.rounds.setdefault(experiment, {}).setdefault(server, [])
        of_server.append(dict(figures))

    def medians(self, experiment: str, server: str) -> dict[str, float]:
        """Each figure's median over the rounds; empty where there are none."""
        rounds = self.rounds.get(experiment, {}).get(server, [])
        return (
            {name: median(figures[name] for figures in rounds) for name in rounds[0]}
            if rounds
            else {}
        )

    def to_dict(self) -> dict[str, object]:
        """As plain values, with the medians."""
        medians = {
            experiment: {server: self.medians(experiment, server) for server in servers}
            for experiment, servers in self.rounds.items()
        }
        return {"format": 1, **asdict(self), "medians": medians}


@dataclass(frozen=True)
class Endpoint:
    """A server that runs.

    Args:
        name: as tables call it.
        url: of its API.
        api_keys: it takes.
    """

    name: str
    url: str
    api_keys: Sequence[str] = ()


class Comparison:
    """Runs experiments on servers.

    Args:
        endpoints: the servers.
        results: filled while it runs.
        progress: told what happens now.
    """

    def __init__(self, endpoints: Sequence[Endpoint], results: Results, progress: Progress) -> None:
        self._endpoints, self._results, self._progress = endpoints, results, progress
        self._measurements: dict[str, Measurement] = {}

    def run(self, experiments: Sequence[Experiment], rounds: int) -> None:
        """Run each experiment so many rounds; one that fails on a server is a problem, no end."""
        for experiment in experiments:
            for number in range(rounds):
                shift = number % len(self._endpoints)
                for endpoint in (*self._endpoints[shift:], *self._endpoints[:shift]):
                    self._progress(f"{experiment.name}, round {number + 1}: {endpoint.name}")
                    self._run_once(experiment, endpoint, number)

    def _run_once(self, experiment: Experiment, endpoint: Endpoint, number: int) -> None:
        try:
            figures = experiment.figures(asyncio.run(self._exchanges(experiment, endpoint, number)))
        except ValueError as error:  # ConfigError is one
            self._results.problems.append(f"{experiment.name}, {endpoint.name}: {error}")
            return
        self._results.add(experiment.name, endpoint.name, figures)

    async def _exchanges(
        self, experiment: Experiment, endpoint: Endpoint, number: int
    ) -> list[Exchanges]:
        warm_up = 0
        if endpoint.name not in self._measurements:
            target = Target(endpoint.url, "", endpoint.api_keys)
            model = await resolve_model(target)
            target = Target(endpoint.url, model, endpoint.api_keys)
            self._measurements[endpoint.name] = Measurement(Client(target))
            warm_up = WARM_UP
        measurement = self._measurements[endpoint.name]
        # Experiments differ in their seeds too: no server has read any of these prompts before.
        first = 1000 * list(BY_NAME).index(experiment.name)
        return [
            await measurement.run(workload, sizes, warm_up if place == 0 else 0)
            for place, (workload, sizes) in enumerate(experiment.seeded(first + number))
        ]
