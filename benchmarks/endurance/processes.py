"""What processes hold, as seen from outside (/proc of Linux); not what they say of themselves."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from benchmarks.closing import Closing

_SAMPLE_SECONDS = 0.05


@dataclass(frozen=True)
class Footprint:
    """What a process holds.

    Args:
        rss: resident bytes, mapped files included.
        threads: how many.
        fds: open files and sockets.
    """

    rss: int
    threads: int
    fds: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        """Of a process that lives."""
        fields = _status(pid)
        fds = len(os.listdir(f"/proc/{pid}/fd"))
        return cls(int(fields["VmRSS"].split()[0]) * 1024, int(fields["Threads"]), fds)

    def __str__(self) -> str:
        return f"{self.rss / 1e6:.0f} MB, {self.threads} threads, {self.fds} files"


def children(pid: int) -> list[int]:
    """Processes that a process started and that still live, the eldest first."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return sorted(found)


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


class Memory(NamedTuple):
    """Bytes of a process that are in memory.

    Args:
        rss: all of them.
        pss: the same, each page shared out among the processes that map it.
        anonymous: those that are of no file, which the system cannot take away.
    """

    rss: int
    pss: int
    anonymous: int


def memory(pid: int) -> Memory:
    """What a process that lives holds."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, _ = line.split()
        fields[name] = int(value) * 1024
    return Memory(fields["Rss:"], fields["Pss:"], fields["Anonymous:"])


class PeakMemory(Closing):
    """The most that some processes held together while this context was open.

    Args:
        pids: of the processes.
        interval: seconds between looks; each takes milliseconds of a process of gigabytes.

    Attributes:
        rss: sum of their resident bytes at the worst moment; shared pages count for each.
        pss: the same, every page counted once.
        anonymous: of these, the bytes that are of no file.
    """

    def __init__(self, pids: Sequence[int], interval: float = _SAMPLE_SECONDS) -> None:
        self._pids, self._interval = pids, interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.rss = self.pss = self.anonymous = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            rss, pss, anonymous = map(sum, zip(*map(memory, self._pids), strict=True))
            self.rss, self.pss = max(self.rss, rss), max(self.pss, pss)
            self.anonymous = max(self.anonymous, anonymous)
            if self._over.wait(self._interval):
                return
