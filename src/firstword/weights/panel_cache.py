"""The folder of panel files: found, begun, limited in size, removed.

Nothing here is needed to run: whatever goes wrong costs the next start the time to make panels
again. Not here: what is in a file and when it is trusted (panel_file).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from firstword.weights.panel_file import PanelFile, PanelLayout, begin, open_file
from firstword.weights.progress import format_bytes
from firstword.weights.store import default_home

MAX_BYTES = 20 * 10**9
"""All panel files together; the least recently used give way."""
MIN_BYTES = 16 * 10**6
"""Smaller models are prepared about as fast as a file is found."""
FREE_SHARE = 0.1
"""Share of the disk that stays free."""

_SUFFIX = ".panels"
_PARTIAL = ".partial-"


@dataclass(frozen=True)
class Usage:
    """What is in the folder.

    Args:
        count: files.
        num_bytes: their bytes.
    """

    count: int
    num_bytes: int


@dataclass(frozen=True)
class Opened:
    """What a start gets from the cache.

    Args:
        file: panels that are there, or a draft to write them to; None to make them in memory.
        notice: why they will not be there next time either, for the user.
    """

    file: PanelFile | None = None
    notice: str | None = None


class PanelCache:
    """The panel files below one home folder.

    Args:
        home: the folder; it need not exist yet. None: `default_home()`.

    Raises:
        ConfigError: there is no default home.
    """

    def __init__(self, home: Path | None = None) -> None:
        self.folder = (default_home() if home is None else home) / "panels"

    def usage(self) -> Usage:
        """Count the finished files."""
        sizes = [size for _, size, _ in self._files()]
        return Usage(len(sizes), sum(sizes))

    def clear(self) -> Usage:
        """Remove everything that no process is writing.

        Returns:
            The finished files that were removed.

        Raises:
            OSError: a file cannot be removed.
        """
        if self.folder.is_dir():
            with self._alone():
                self._sweep()
        removed = []
        for path, size, _ in self._files():
            path.unlink(missing_ok=True)
            removed.append(size)
        return Usage(len(removed), sum(removed))

    def open(self, model: Path, layout: PanelLayout) -> Opened:
        """The panels of a model: those that are there, or a draft. Never an error.

        Args:
            model: the model file; an older state of it gives way to a newer one.
            layout: what is to be where.
        """
        if layout.num_bytes < MIN_BYTES:
            return Opened()
        target = self.folder / f"{stem(model)}-{layout.key.hex()[:32]}{_SUFFIX}"
        try:
            found = self._find(target, layout)
            return self._begin(target, layout) if found is None else Opened(found)
        except OSError as error:
            return Opened(notice=not_kept(str(error)))

    def _find(self, target: Path, layout: PanelLayout) -> PanelFile | None:
        """The file, if there is one that can be trusted; a damaged one is removed."""
        if not target.exists():
            return None
        file = open_file(layout, target)
        if file is None:
            target.unlink(missing_ok=True)
            return None
        try:
            os.utime(target)  # used last now
        except OSError:
            pass  # a folder that others fill is as good
        return file

    def _begin(self, target: Path, layout: PanelLayout) -> Opened:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            self._sweep()
            if any(self.folder.glob(f"{_PARTIAL}{target.name}-*")):
                return Opened()  # another process is making it
            refusal = self._make_room(layout.num_bytes, target)
            if refusal:
                return Opened(notice=not_kept(refusal))
            fd, name = tempfile.mkstemp(prefix=f"{_PARTIAL}{target.name}-", dir=self.folder)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path = Path(name)
        try:
            return Opened(begin(layout, fd, path, target))
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(fd)
            raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes out: a draft is made and locked before anybody can sweep it."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _make_room(self, need: int, target: Path) -> str | None:
        """Remove what is oldest, and older states of this model; or say why that is not enough."""
        if need > MAX_BYTES:
            return (
                f"they take {format_bytes(need)} and the cache holds {format_bytes(MAX_BYTES)} "
                "in all"
            )
        files = sorted(self._files(), key=lambda file: file[2])
        stale = [file for file in files if file[0].name.startswith(target.name.split("-")[0])]
        others = [file for file in files if file not in stale]
        total = sum(size for _, size, _ in others) + self._partial_bytes() + need
        going = list(stale)
        while total > MAX_BYTES and others:
            going.append(others.pop(0))
            total -= going[-1][1]
        disk = shutil.disk_usage(self.folder)
        free = disk.free + sum(size for _, size, _ in going) - need
        if free < FREE_SHARE * disk.total:
            return (
                f"they take {format_bytes(need)}, {format_bytes(disk.free)} are free on the disk "
                f"of {self.folder}, and a tenth of it is to stay free"
            )
        for path, _, _ in going:
            path.unlink(missing_ok=True)
        return None

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        """Finished files with their bytes and the time of their last use."""
        for path in self.folder.glob(f"*{_SUFFIX}"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            yield path, status.st_size, status.st_mtime

    def _partial_bytes(self) -> int:
        total = 0
        for path in self.folder.glob(f"{_PARTIAL}*"):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
        return total

    def _sweep(self) -> None:
        """Remove the drafts of processes that died: nobody holds their locks. Called alone."""
        for path in self.folder.glob(f"{_PARTIAL}*"):
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
            except OSError:
                continue
            finally:
                os.close(fd)


def stem(model: Path) -> str:
    """The same for every name of one model file."""
    return sha256(os.fsencode(os.path.realpath(model))).hexdigest()[:16]


def not_kept(reason: str) -> str:
    """What to tell the user when the cache is of no use, and why."""
    return (
        f"the prepared weights are not kept: {reason}. Every start prepares them anew; "
        "--no-panel-cache does so without this note"
    )
