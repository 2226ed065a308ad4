"""The files of a store under kills, damage, full disks and several writers.

Not here: engines that use it (engines).
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks.endurance.report import Report
from benchmarks.kv_crash.blocks import MAX_BYTES, examine, open_store, texts
from benchmarks.kv_crash.damage import filled_files, flip
from benchmarks.kv_crash.process import ended, forked, killed_after, killed_in_call
from firstword.kvcache.disk.home import KVHome
from firstword.kvcache.disk.record import StoredBlock

_SMALL_DISK = 512 * 1024
_PAGE = 4096
_FEW, _FEW_BYTES = 24, 500_000  # blocks, and a cap that holds half of them


class StoreChecks:
    """Checks of one store after another; every finding is a line of the report.

    Args:
        report: receives the findings.
        seed: of every random choice.
    """

    def __init__(self, report: Report, seed: int) -> None:
        self._report = report
        self._random = Random(seed)
        self._texts = texts()
        self._blocks = [block for text in self._texts for block in text]

    def kills(self, number: int) -> None:
        """Kill the writer at random times; each goes on with what the last one left."""
        with TemporaryDirectory() as folder:
            home = Path(folder) / "kv"
            tally = _Tally()
            for index in range(number):
                work = partial(self._write, home, self._random.randrange(len(self._texts)))
                status = killed_after(work, self._random.random() / 25)
                tally.add(status in (0, -9), *self._examined(home))
                if index % 20 == 19:  # so that there is always something to write
                    _clear(home)
            self._say("kills", tally, f"{number} kills at random times")

    def kills_in_calls(self, most: int) -> None:
        """Kill the writer in each call that changes files, at most so many."""
        tally, few = _Tally(), self._texts[0][:_FEW]
        for call in range(most):
            with TemporaryDirectory() as folder:
                home = Path(folder) / "kv"
                work = partial(_write, home, few, _FEW_BYTES)
                status = killed_in_call(work, call)
                found = examine(home, few, _FEW_BYTES)
                tally.add(status in (0, -9), found.num_wrong, found.num_bytes <= _FEW_BYTES)
                rewritten = ended(forked(work))
                again = examine(home, few, _FEW_BYTES)
                tally.add(rewritten == 0 and again.num_kept > 0, again.num_wrong, True)
                if status == 0:
                    break
        self._say("calls", tally, f"killed in each of {call} calls that change files")

    def flips(self, number: int) -> None:
        """Flip single bits of the files."""
        self._damage("flips", number, self._flip)

    def cuts(self, number: int) -> None:
        """Cut files off."""
        self._damage("cuts", number, self._cut)

    def writers(self, rounds: int) -> None:
        """Two processes write the same prompts at the same time, and one of them is killed."""
        with TemporaryDirectory() as folder:
            home = Path(folder) / "kv"
            tally = _Tally()
            for _ in range(rounds):
                pids = [forked(partial(self._write, home, 0)) for _ in range(2)]
                if self._random.random() < 0.5:
                    time.sleep(self._random.random() / 25)
                    os.kill(pids[0], signal.SIGKILL)
                statuses = [ended(pid) for pid in pids]
                wrong, in_cap = self._examined(home)
                tally.add(statuses[0] in (0, -9) and statuses[1] == 0, wrong, in_cap)
                _clear(home)
            self._say("writers", tally, f"{rounds} times two writers of the same prompts")

    def full_disks(self, step_pages: int = 1) -> None:
        """Fill a small disk up to each page, write, make room, and write again."""
        with _small_disk() as disk:
            if disk is None:
                self._report.say("full: no small disk can be mounted here; not checked")
                return
            tally, rounds = _Tally(), range(0, _SMALL_DISK // _PAGE, step_pages)
            for pages in rounds:
                ballast = disk / "ballast"
                _fill(ballast, _SMALL_DISK - pages * _PAGE)
                tally.add(ended(forked(partial(self._write, disk / "kv", 0))) == 0, 0, True)
                tally.add(True, examine(disk / "kv", self._blocks).num_wrong, True)
                ballast.unlink()
                status = ended(forked(partial(self._write, disk / "kv", 1)))
                found = examine(disk / "kv", self._blocks)
                tally.add(status == 0 and found.num_kept > 0, found.num_wrong, True)
                _clear(disk / "kv")
            self._say(
                "full", tally, f"a disk of {_SMALL_DISK:,} bytes full at {len(rounds)} points"
            )

    def _damage(self, name: str, number: int, harm: Callable[[Path], None]) -> None:
        with TemporaryDirectory() as folder:
            home, tally, lost = Path(folder) / "kv", _Tally(), 0
            for _ in range(number):
                self._write(home, self._random.randrange(len(self._texts)))
                before = examine(home, self._blocks).num_kept
                harm(home)
                after = examine(home, self._blocks)
                lost += before - after.num_kept
                tally.add(after.num_kept <= before, after.num_wrong, after.num_bytes <= MAX_BYTES)
            self._say(name, tally, f"{number} {name}, {lost} blocks lost")

    def _flip(self, home: Path) -> None:
        path, size = self._any_file(home)
        flip(path, self._random.randrange(8 * size))

    def _cut(self, home: Path) -> None:
        path, size = self._any_file(home)
        os.truncate(path, self._random.randrange(size))

    def _any_file(self, home: Path) -> tuple[Path, int]:
        files = filled_files(home)
        entries = [path for path in files if path.suffix == ".idx"]
        path = self._random.choice(entries if self._random.random() < 0.5 else files)
        return path, path.stat().st_size

    def _write(self, home: Path, first: int) -> None:
        """Write all texts, beginning with one of them."""
        ordered = self._texts[first:] + self._texts[:first]
        _write(home, [block for text in ordered for block in text], MAX_BYTES)

    def _examined(self, home: Path) -> tuple[int, bool]:
        found = examine(home, self._blocks)
        return found.num_wrong, found.num_bytes <= MAX_BYTES

    def _say(self, name: str, tally: _Tally, what: str) -> None:
        self._report.check(tally.is_good, f"{name}: {what}: {tally}")


class _Tally:
    """Findings of one check, added up."""

    def __init__(self) -> None:
        self.num_failed = self.num_wrong = self.num_beyond_cap = 0

    def add(self, is_sound: bool, num_wrong: int, is_in_cap: bool) -> None:
        """Count one round."""
        self.num_failed += not is_sound
        self.num_wrong += num_wrong
        self.num_beyond_cap += not is_in_cap

    @property
    def is_good(self) -> bool:
        """Whether nothing was found."""
        return not (self.num_failed or self.num_wrong or self.num_beyond_cap)

    def __str__(self) -> str:
        return (
            f"{self.num_wrong} wrong blocks, {self.num_failed} failed rounds, "
            f"{self.num_beyond_cap} beyond the cap"
        )


def _write(home: Path, blocks: Sequence[StoredBlock], max_bytes: int) -> None:
    store = open_store(home, max_bytes)
    for block in blocks:
        store.append(block)
    store.close()


def _clear(home: Path) -> None:
    KVHome(home).clear()


def _fill(path: Path, size: int) -> None:
    """Write a file of that size, or of what there is room for."""
    try:
        path.write_bytes(bytes(size))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextmanager
def _small_disk() -> Iterator[Path | None]:
    """A file system of its own, where this user may mount one."""
    with TemporaryDirectory() as folder:
        options = f"size={_SMALL_DISK}"
        mount = ["mount", "-t", "tmpfs", "-o", options, "none", folder]
        if subprocess.run(mount, capture_output=True).returncode:
            yield None
            return
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)
