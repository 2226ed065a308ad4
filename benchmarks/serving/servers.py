"""Servers to compare: how each is installed, started, and known to be ready; not what is asked."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from benchmarks.closing import Closing
from benchmarks.endurance.processes import children
from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.peers.session import EngineFailedError
from firstword import __version__
from firstword.bench.serving.http import Address

START_SECONDS = 180.0
"""That a server may take to load a model."""

STOP_SECONDS = 20.0
_SAID_BYTES = 2000


@dataclass(frozen=True)
class Launch:
    """What a server is started for.

    Args:
        model: the file.
        port: it listens on.
        keys_file: API keys, one a line; None to ask for none.
        threads: to compute with.
        slots: requests at once.
        context: tokens of each request that must fit.
    """

    model: Path
    port: int
    keys_file: Path | None
    threads: int
    slots: int = 16
    context: int = 4608

    @property
    def key_flags(self) -> list[str]:
        """The option that both servers know."""
        return [] if self.keys_file is None else ["--api-key-file", str(self.keys_file)]


class Server(Protocol):
    """A program that serves."""

    @property
    def name(self) -> str:
        """As tables call it."""
        ...

    @property
    def version(self) -> str:
        """Of the program."""
        ...

    def install(self) -> None:
        """Make it ready to be started; nothing happens if it is.

        Raises:
            EngineFailedError: it cannot be had.
        """
        ...

    def command(self, launch: Launch) -> Sequence[str]:
        """The command line."""
        ...


@dataclass(frozen=True)
class FirstwordServer:
    """Ours, as it lies here.

    Args:
        flags: further options of `firstword serve`.
    """

    flags: tuple[str, ...] = ()
    name: str = "firstword"
    version: str = __version__

    def install(self) -> None:
        """Nothing to do."""

    def command(self, launch: Launch) -> Sequence[str]:
        """`firstword serve`."""
        return [
            sys.executable, "-m", "firstword", "serve", str(launch.model),
            "--host", "127.0.0.1", "--port", str(launch.port),
            "--threads", str(launch.threads), "--max-num-seqs", str(launch.slots),
            *launch.key_flags, *self.flags,
        ]  # fmt: skip


@dataclass(frozen=True)
class LlamaServer:
    """llama.cpp's.

    Args:
        peer: how it is built.
        flags: further options of `llama-server`.
    """

    peer: LlamaCpp = field(default_factory=LlamaCpp)
    flags: tuple[str, ...] = ()
    name: str = "llama.cpp"

    @property
    def version(self) -> str:
        """The release."""
        return self.peer.version

    def install(self) -> None:
        """Build it."""
        self.peer.install()

    def command(self, launch: Launch) -> Sequence[str]:
        """`llama-server`, with a context that it divides among its slots."""
        return [
            str(self.peer.libraries / "llama-server"), "-m", str(launch.model),
            "--host", "127.0.0.1", "--port", str(launch.port),
            "--threads", str(launch.threads), "-np", str(launch.slots),
            "-c", str(launch.slots * launch.context),
            *launch.key_flags, *self.flags,
        ]  # fmt: skip


class RunningServer(Closing):
    """A server's process, ready for requests; an idle one uses no processor.

    Args:
        server: which.
        launch: what for.
        environment: variables on top of this process's own.

    Raises:
        EngineFailedError: it did not become ready.
    """

    def __init__(
        self, server: Server, launch: Launch, environment: Mapping[str, str] | None = None
    ) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{launch.port}/v1"
        self._log: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                server.command(launch),
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        except OSError as error:
            self._log.close()
            raise EngineFailedError(f"{server.name}: {error}") from error
        try:
            self._wait(f"http://127.0.0.1:{launch.port}/health")
        except BaseException:
            self.close()
            raise

    def _wait(self, url: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(url):
            status = self._process.poll()
            if status is not None:
                raise EngineFailedError(f"{self.server.name} ended with {status}:\n{self._said()}")
            if time.monotonic() > deadline:
                raise EngineFailedError(
                    f"{self.server.name} was not ready after {START_SECONDS:.0f} s:\n{self._said()}"
                )
            time.sleep(0.1)

    @property
    def address(self) -> Address:
        """Where it answers."""
        return Address.parse(self.url.removesuffix("/v1"))

    @property
    def pids(self) -> list[int]:
        """Of the process, and of those that it started."""
        return [self._process.pid, *children(self._process.pid)]

    def kill(self) -> None:
        """End all of its processes at once, without a word."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the process: as an operator would, and if it does not listen, by force."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _said(self) -> str:
        """The end of what the process wrote."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _SAID_BYTES))
        return self._log.read().decode(errors="replace").strip()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
