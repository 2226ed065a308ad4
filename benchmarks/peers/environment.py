"""A virtual environment for each peer, in the cache folder: none meets another's packages."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.engine import run
from firstword.weights.store import default_home


@dataclass(frozen=True)
class Environment:
    """A folder with a virtual environment and whatever a peer builds beside it.

    Args:
        name: of the folder.
        packages: what pip installs, versions included.
        root: where the folder lies; None for the cache folder.
    """

    name: str
    packages: tuple[str, ...]
    root: Path | None = None

    @property
    def folder(self) -> Path:
        """Everything of this peer."""
        return (self.root or default_home() / "peers") / self.name

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "venv" / "bin" / "python"

    def program(self, name: str) -> str:
        """Path of a program that a package installed."""
        return str(self.python.parent / name)

    def install(self) -> None:
        """Make the environment; nothing happens if the same packages are in it already.

        Raises:
            EngineFailedError: pip failed.
        """
        stamp = self.folder / "installed.txt"
        wanted = "\n".join(self.packages)
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        print(f"installing {self.name} into {self.folder}", file=sys.stderr)
        self.folder.mkdir(parents=True, exist_ok=True)
        run([sys.executable, "-m", "venv", str(self.folder / "venv")])
        self.pip("install", "--quiet", *self.packages)
        stamp.write_text(wanted)

    def pip(self, *arguments: str) -> None:
        """Run pip in the environment."""
        run([str(self.python), "-m", "pip", "--disable-pip-version-check", *arguments])


@dataclass(frozen=True)
class Packaged:
    """What engines share that are a package in an environment of their own.

    Args:
        home: where it is installed.
    """

    release: ClassVar[str]
    home: Environment

    @property
    def version(self) -> str:
        """The package's release."""
        return self.release

    def install(self) -> None:
        """Install the package."""
        self.home.install()
