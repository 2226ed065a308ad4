"""What the runner needs of an engine, and the engine of this repository."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.peers.session import TIMEOUT_SECONDS, EngineFailedError, Job, Session
from firstword.bench.cases import Case

DRIVERS = Path(__file__).parent / "drivers"


class Engine(Protocol):
    """An engine in one setting."""

    @property
    def name(self) -> str:
        """The engine."""
        ...

    @property
    def setting(self) -> str:
        """Its setting in words; empty for the one it chooses itself."""
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

    def can_run(self, case: Case) -> bool:
        """Whether it has a way to run this case at all."""
        ...

    def open(self, job: Job) -> Session:
        """Load a model in a process of its own.

        Raises:
            EngineFailedError: it does not load it.
        """
        ...


@dataclass(frozen=True)
class Firstword:
    """This repository's engine, as `firstword bench` runs it."""

    name: str = "firstword"
    setting: str = ""

    @property
    def version(self) -> str:
        """Version and commit."""
        from firstword.bench.machine import fingerprint

        return fingerprint().firstword

    def install(self) -> None:
        """Nothing: it is running this."""

    def can_run(self, case: Case) -> bool:
        """All cases."""
        return True

    def open(self, job: Job) -> Session:
        """Load a model."""
        return Session([sys.executable, str(DRIVERS / "drive_firstword.py"), *job.arguments])


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
