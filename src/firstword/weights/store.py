"""Where fetched models live, how a file lands there, and which licenses were accepted.

A file appears under its final name only when every byte is there and checked. Not here: where the
bytes come from (download, hub) and what the models are (catalogue).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from firstword.errors import ConfigError, DownloadError
from firstword.weights.progress import Progress, Reporter, format_bytes

_PARTIAL = ".partial-"
_READ_BYTES = 4 * 2**20
_HOME_REMEDY = "set FIRSTWORD_HOME to a folder that you can write to"


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of everything firstword keeps: FIRSTWORD_HOME, else under the user's cache.

    The cache folder is found as the XDG Base Directory Specification says: XDG_CACHE_HOME when it
    is an absolute path, else ~/.cache.

    Raises:
        ConfigError: none of the three can be found.
    """
    if environ.get("FIRSTWORD_HOME"):
        return Path(environ["FIRSTWORD_HOME"]).expanduser().absolute()
    cache = environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):
        return Path(cache) / "firstword"
    home = environ.get("HOME", "")
    if not os.path.isabs(home):
        raise ConfigError(f"HOME is {home!r}, which is no absolute path: {_HOME_REMEDY}")
    return Path(home) / ".cache" / "firstword"


def kv_home() -> Path:
    """The folder of the KV blocks that are kept of prompts; errors as for `default_home`."""
    return default_home() / "kv"


@dataclass(frozen=True)
class Artifact:
    """A file that is known to the byte before it is fetched.

    Args:
        model: catalogue name of the model it belongs to.
        file: its file name.
        size: its length in bytes.
        sha256: its checksum, 64 hexadecimal digits.
    """

    model: str
    file: str
    size: int
    sha256: str


class CheckedWriter:
    """Writes a file and hashes it on the way, so that no byte is read twice.

    Args:
        file: open for writing, empty.
        artifact: what is to be written.
    """

    def __init__(self, file: BinaryIO, artifact: Artifact) -> None:
        self._file = file
        self._artifact = artifact
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, chunk: bytes) -> None:
        """Append `chunk`.

        Raises:
            DownloadError: the file gets longer than it may be.
        """
        self._size += len(chunk)
        if self._size > self._artifact.size:
            raise DownloadError(self._problem(f"more than {self._artifact.size} bytes arrived"))
        self._hash.update(chunk)
        self._file.write(chunk)

    def close(self) -> None:
        """Bring the file to the disk and compare it with what was promised.

        Raises:
            DownloadError: length or checksum differ.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        if self._size != self._artifact.size:
            raise DownloadError(
                self._problem(f"{self._size} of {self._artifact.size} bytes arrived")
            )
        if self._hash.hexdigest() != self._artifact.sha256:
            raise DownloadError(
                self._problem(
                    f"its sha256 is {self._hash.hexdigest()}, not {self._artifact.sha256}"
                )
            )

    def _problem(self, what: str) -> str:
        return (
            f"{self._artifact.model}: {self._artifact.file}: {what}; nothing was kept. Pull again; "
            "if it happens again, your index or proxy serves another file"
        )


Fetch = Callable[[CheckedWriter, Path], None]
"""Writes the file's bytes; the second argument is an empty scratch folder for its own use."""


class Store:
    """The files below one home folder.

    Args:
        home: the folder; it need not exist yet. None: `default_home()`.
    """

    def __init__(self, home: Path | None = None) -> None:
        self.home = default_home() if home is None else home

    @property
    def models(self) -> Path:
        """The folder with one folder per model."""
        return self.home / "models"

    def path(self, artifact: Artifact) -> Path:
        """Where the file is, or would be."""
        return self.models / _folder_name(artifact.model) / artifact.file

    def find(self, artifact: Artifact) -> Path | None:
        """The file when it is there in full, else None."""
        path = self.path(artifact)
        try:
            return path if path.is_file() and path.stat().st_size == artifact.size else None
        except OSError:
            return None

    def damage(self, artifact: Artifact, progress: Progress) -> str | None:
        """Read the whole file again and compare it with what was promised.

        Args:
            artifact: a file that is there, whatever is in it.
            progress: told of the bytes that were read.

        Returns:
            What is wrong with the file; None when every byte is right.
        """
        path = self.path(artifact)
        digest = hashlib.sha256()
        try:
            size = path.stat().st_size
            if size != artifact.size:
                return f"it has {size} bytes, not {artifact.size}"
            with open(path, "rb") as file:
                while chunk := file.read(_READ_BYTES):
                    digest.update(chunk)
                    progress.advance(len(chunk))
        except OSError as error:
            return f"it cannot be read ({error})"
        if digest.hexdigest() != artifact.sha256:
            return f"its sha256 is {digest.hexdigest()}, not {artifact.sha256}"
        return None

    def land(
        self, artifact: Artifact, fetch: Fetch, reporter: Reporter, *, scratch_bytes: int = 0
    ) -> Path:
        """Fetch the file unless it is there; one process at a time, all of it or nothing.

        Args:
            artifact: what to fetch.
            fetch: brings the bytes.
            reporter: told when another process has to be waited for.
            scratch_bytes: most bytes that `fetch` keeps in its scratch folder at once.

        Raises:
            DownloadError: the bytes differ from the artifact, or the disk is or gets full.
            ConfigError: the home folder cannot be written to.
        """
        target = self.path(artifact)
        with self._lock(artifact.model, reporter):
            if found := self.find(artifact):
                return found
            with self._writing():
                target.parent.mkdir(parents=True, exist_ok=True)
                for stale in target.parent.glob(f"{_PARTIAL}*"):
                    # From a process that died: we hold the lock it had.
                    shutil.rmtree(stale, ignore_errors=True)
                self._check_free_space(artifact, scratch_bytes)
                partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=target.parent))
                try:
                    _fetch_into(target, partial, artifact, fetch)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
        return target

    def accepted_licenses(self) -> frozenset[str]:
        """Ids of the licenses accepted here; none when the record cannot be read."""
        return frozenset(self._read_licenses())

    def accept_license(self, license_id: str, reporter: Reporter) -> None:
        """Remember that the user has accepted a license, and when."""
        with self._lock("licenses", reporter), self._writing():
            record = self._read_licenses()
            if license_id in record:
                return
            record[license_id] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            draft = self._license_record.with_suffix(".draft")
            draft.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            os.replace(draft, self._license_record)

    def _read_licenses(self) -> dict[str, str]:
        try:
            record = json.loads(self._license_record.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}

    @property
    def _license_record(self) -> Path:
        return self.home / "accepted_licenses.json"

    @contextmanager
    def _lock(self, name: str, reporter: Reporter) -> Iterator[None]:
        from filelock import FileLock, Timeout

        with self._writing():
            folder = self.home / "locks"
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / f"{_folder_name(name)}.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                reporter.note(f"{name}: waiting for another firstword that is fetching it")
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Say what to do when the disk refuses."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DownloadError(
                    f"the disk of {self.home} is full ({error}); nothing unfinished was kept. "
                    "Free some space, or set FIRSTWORD_HOME to a folder on a larger disk"
                ) from error
            raise ConfigError(f"cannot write to {self.home} ({error}): {_HOME_REMEDY}") from error

    def _check_free_space(self, artifact: Artifact, scratch_bytes: int) -> None:
        need = artifact.size + scratch_bytes
        free = shutil.disk_usage(self.models).free
        if free < need:
            raise DownloadError(
                f"{artifact.model} needs {format_bytes(need)} while it is fetched and "
                f"{format_bytes(artifact.size)} afterwards, but {self.models} has "
                f"{format_bytes(free)} free. Free {format_bytes(need - free)}, or set "
                "FIRSTWORD_HOME to a folder on a larger disk"
            )


def _fetch_into(target: Path, partial: Path, artifact: Artifact, fetch: Fetch) -> None:
    scratch = partial / "scratch"
    scratch.mkdir()
    draft = partial / "file"
    with open(draft, "xb") as file:
        writer = CheckedWriter(file, artifact)
        fetch(writer, scratch)
        writer.close()
    os.replace(draft, target)
    # The new name itself has to survive a power cut too.
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _folder_name(model: str) -> str:
    """A catalogue name as one folder name that every file system takes."""
    return model.replace(":", "-")
