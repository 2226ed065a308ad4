"""What the runner needs of an engine, and the engine of this repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from firstword.bench.cases import Case

TIMEOUT_SECONDS = 1800
"""Of one process."""

_KEPT = ("share_of_limit", "gmacs", "outside_share", "step_bytes")
"""Of our own report, what a comparison keeps."""


class EngineFailedError(Exception):
    """An engine could not be installed or did not run a model; the message says why."""


@dataclass(frozen=True)
class Measured:
    """What one process of an engine measured.

    Args:
        speeds: tokens per second of each case that the engine can run.
        details: whatever else the report should keep.
    """

    speeds: Mapping[Case, float]
    details: Mapping[str, object] = field(default_factory=dict)


class Engine(Protocol):
    """An engine in one setting."""

    @property
    def name(self) -> str:
        """The engine, and the setting where it is not the usual one."""
        ...

    @property
    def version(self) -> str:
        """The release that runs."""
        ...

    def install(self) -> None:
        """Make it ready to run; nothing happens if it is.

        Raises:
            EngineFailedError: that did not work.
        """
        ...

    def measure(self, model: Path, cases: Sequence[Case], threads: int) -> Measured:
        """Load a model in a process of its own, warm up, and run each case once.

        Raises:
            EngineFailedError: the process failed.
        """
        ...


@dataclass(frozen=True)
class Firstword:
    """This repository's engine, through `firstword bench`."""

    name: str = "firstword"

    @property
    def version(self) -> str:
        """Version and commit."""
        from firstword.bench.machine import fingerprint

        return fingerprint().firstword

    def install(self) -> None:
        """Nothing: it is running this."""

    def measure(self, model: Path, cases: Sequence[Case], threads: int) -> Measured:
        """One process for each case, which its command line then names exactly."""
        speeds: dict[Case, float] = {}
        details: dict[str, object] = {}
        for case in cases:
            report = self._bench(model, case, threads)
            (result,) = report["results"]
            speeds[case] = result["speed"]
            details[case.label] = {name: result[name] for name in _KEPT}
            details["read_bandwidth"] = report["setting"]["read_bandwidth"]
            details["backend"] = report["setting"]["backend"]
        return Measured(speeds, details)

    def _bench(self, model: Path, case: Case, threads: int) -> dict[str, Any]:
        sizes = {"prefill": (str(case.num_tokens), ""), "decode": ("", str(case.num_tokens))}
        prompt, generate = sizes[case.kind]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            run(
                [
                    sys.executable, "-m", "firstword", "bench", str(model), "--no-chat",
                    "--prompt", prompt, "--generate", generate, "--depth", str(case.depth),
                    "--batch", str(case.batch), "--threads", str(threads), "--repeat", "1",
                    "--json", str(file),
                ]
            )  # fmt: skip
            report: dict[str, Any] = json.loads(file.read_text())
        return report


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> str:
    """Run a process to its end; returns its standard output.

    Raises:
        EngineFailedError: it failed; the message has the end of what it said.
    """
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineFailedError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise EngineFailedError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
    return done.stdout
