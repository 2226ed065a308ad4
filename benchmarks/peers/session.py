"""An engine that stays loaded in a process of its own and times one case after the other.

Not here: which cases and in whose company (compare), and what runs in the process (drivers).

A driver says `READY` when its model is loaded, reads one case a line, and answers each with
`RESULT` and a JSON object, or with `FAILED` and a reason. Whatever else it prints is passed over.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import IO

from benchmarks.closing import Closing
from firstword.bench.cases import Case

TIMEOUT_SECONDS = 1200
"""Of loading a model, or of one case."""

_SAID_BYTES = 2000


class EngineFailedError(Exception):
    """An engine could not be installed or did not run a model; the message says why."""


@dataclass(frozen=True)
class Timing:
    """One run of one case.

    Args:
        speed: tokens per second, all sequences together.
        details: whatever else the driver says of it.
    """

    speed: float
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """What a process takes.

    Args:
        resident: bytes now; pages of mapped files that were read are among them.
        peak: most bytes so far.
    """

    resident: int
    peak: int


@dataclass(frozen=True)
class Job:
    """What a session is opened for.

    Args:
        model: the file.
        threads: to compute with.
        context: tokens of a sequence that must fit.
        batch: most sequences at once.
        text: file of token ids, 32 bits each, that prompts are cut from; None for random tokens.
    """

    model: Path
    threads: int
    context: int
    batch: int = 1
    text: Path | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """As every driver takes them, in this order."""
        sizes = (str(n) for n in (self.threads, self.context, self.batch))
        return (str(self.model), *sizes, str(self.text or "-"))


class Session(Closing):
    """A driver's process.

    Args:
        command: the driver and its arguments.
        environment: variables on top of this process's own.
        timeout: seconds that loading, or one case, may take.

    Raises:
        EngineFailedError: the process did not come to the point of taking cases.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._timeout = timeout
        self._log: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                errors="replace",
            )
        except OSError as error:
            self._log.close()
            raise EngineFailedError(f"{command[0]}: {error}") from error
        try:
            self._answer("READY")
        except EngineFailedError:
            self.close()
            raise

    def time(self, case: Case) -> Timing:
        """Run a case once.

        Raises:
            EngineFailedError: the process failed, or cannot run this case.
        """
        assert self._process.stdin is not None
        try:
            words = (case.kind, case.num_tokens, case.depth, case.batch)
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the process has ended, and reading its answer says how
        result = json.loads(self._answer("RESULT"))
        tokens, seconds = float(result["tokens"]), float(result.pop("seconds"))
        return Timing(tokens / seconds, result)

    def memory(self) -> Memory | None:
        """What the process takes; None where Linux's files about processes are missing."""
        return read_memory(Path(f"/proc/{self._process.pid}/status"))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass  # what was left to write has no reader
        self._log.close()

    def _answer(self, word: str) -> str:
        """What follows `word` on the line that begins with it."""
        assert self._process.stdout is not None
        timer = Timer(self._timeout, self._process.kill)
        timer.start()
        last = ""
        try:
            for line in self._process.stdout:
                first, _, rest = line.strip().partition(" ")
                if first == word:
                    return rest
                if first == "FAILED":
                    raise EngineFailedError(rest)
                last = line.strip() or last
        finally:
            timer.cancel()
        status = self._process.wait()
        raise EngineFailedError(f"the process ended with {status}:\n{self._said() or last}")

    def _said(self) -> str:
        """The end of what the process wrote to its standard error."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _SAID_BYTES))
        return self._log.read().decode(errors="replace").strip()


def read_memory(status: Path) -> Memory | None:
    """Resident and peak bytes from a file like /proc/self/status."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    found = {name: text for name, _, text in (line.partition(":") for line in lines)}
    if "VmRSS" not in found or "VmHWM" not in found:
        return None
    resident, peak = (1024 * int(found[name].split()[0]) for name in ("VmRSS", "VmHWM"))
    return Memory(resident, peak)
