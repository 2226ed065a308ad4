"""Runs the command line within the test's process."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from firstword.cli.main import main


@dataclass(frozen=True)
class Finished:
    """What a command left."""

    status: int
    stdout: str
    stderr: str


class Terminal:
    """Runs commands and collects what they print.

    Args:
        monkeypatch: replaces the arguments and standard input.
        capfd: collects the output.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capfd = monkeypatch, capfd

    def run(self, *arguments: str, stdin: bytes = b"") -> Finished:
        """Run `firstword ARGUMENTS` with `stdin` piped in."""
        import io

        self._monkeypatch.setattr(sys, "argv", ["firstword", *arguments])
        pipe = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        self._monkeypatch.setattr(sys, "stdin", pipe)
        self._capfd.readouterr()
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        captured = self._capfd.readouterr()
        return Finished(status, captured.out, captured.err)
