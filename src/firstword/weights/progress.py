"""What a download says while it runs: notes, and bytes as they arrive; always on stderr.

Not here: fetching itself (download, hub) and what a command prints as its result (cli).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID


class Progress(Protocol):
    """One running transfer."""

    def advance(self, num_bytes: int) -> None:
        """Count `num_bytes` more bytes as arrived; >= 0."""


class Reporter(Protocol):
    """Where a download tells what it does."""

    def note(self, message: str) -> None:
        """Show one line."""

    def progress(self, description: str, total_bytes: int) -> AbstractContextManager[Progress]:
        """Open the progress of a transfer of `total_bytes`; leaving it without error ends it."""


def format_bytes(num_bytes: int) -> str:
    """A size for people, in decimal units as file managers and indexes show it.

    >>> format_bytes(98_362_432), format_bytes(4_920_000_000), format_bytes(12)
    ('98 MB', '4.9 GB', '12 bytes')
    """
    if num_bytes >= 10**9:
        return f"{num_bytes / 10**9:.1f} GB"
    if num_bytes >= 10**6:
        return f"{num_bytes / 10**6:.0f} MB"
    if num_bytes >= 10**4:
        return f"{num_bytes / 10**3:.0f} kB"
    return f"{num_bytes} bytes"


class NullReporter:
    """Says nothing."""

    def note(self, message: str) -> None:
        """Drop the line."""

    @contextmanager
    def progress(self, description: str, total_bytes: int) -> Iterator[Progress]:
        """Count into the void."""
        yield _Uncounted()


class StderrReporter:
    """A bar while stderr is a terminal; else one plain line at the start and one at the end."""

    def note(self, message: str) -> None:
        """Print one line."""
        print(message, file=sys.stderr, flush=True)

    @contextmanager
    def progress(self, description: str, total_bytes: int) -> Iterator[Progress]:
        """Draw the transfer until the block is left."""
        start = time.monotonic()
        if sys.stderr.isatty():
            with _bar(description, total_bytes) as bar:
                yield bar
        else:
            self.note(f"{description}: {format_bytes(total_bytes)} to fetch")
            yield _Uncounted()
        self.note(f"{description}: fetched in {time.monotonic() - start:.1f} s")


class _Uncounted:
    def advance(self, num_bytes: int) -> None:
        pass


@contextmanager
def _bar(description: str, total_bytes: int) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _Bar(bars, bars.add_task(description, total=total_bytes))


class _Bar:
    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def advance(self, num_bytes: int) -> None:
        self._bars.advance(self._task, num_bytes)
