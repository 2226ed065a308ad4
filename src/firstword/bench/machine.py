"""The machine under a measurement: what it is, how busy it is, how fast it reads memory."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from firstword import __version__
from firstword.ops.native_peak import MacRates, mac_rates
from firstword.plan.hardware import usable_cores

_BYTES_PER_THREAD = 128 * 2**20
"""Far more than caches hold."""
_FEATURES = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8")
_PIECES = 8
_PASSES = 4


@dataclass(frozen=True)
class Fingerprint:
    """What a result depends on besides the model.

    Args:
        cpu: the processor's name.
        features: its vector instructions that matter to kernels; empty where they are not known.
        cores: usable physical cores.
        memory_bytes: of the machine; 0 where it is not known.
        system: operating system and its version.
        python: version.
        firstword: version, and the commit where it runs from a repository.
    """

    cpu: str
    features: tuple[str, ...]
    cores: int
    memory_bytes: int
    system: str
    python: str
    firstword: str


def fingerprint() -> Fingerprint:
    """This machine and this installation."""
    return Fingerprint(
        cpu=_cpuinfo("model name") or platform.processor() or platform.machine(),
        features=tuple(name for name in _FEATURES if name in _cpuinfo("flags").split()),
        cores=usable_cores().count,
        memory_bytes=_memory_bytes(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        firstword=_version(),
    )


def load_average() -> float | None:
    """Processes that wanted to run in the last minute; None where that is not counted."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def read_bandwidth(
    num_threads: int, clock: Callable[[], float] = time.perf_counter, piece: int = _BYTES_PER_THREAD
) -> float:
    """Bytes per second that so many threads read from memory, the best of a few passes.

    Each thread takes the maximum over integers of its own, which is quicker than memory.

    Args:
        num_threads: at least 1.
        clock: seconds.
        piece: bytes of each thread.
    """
    numbers = np.ones(num_threads * piece // 8, dtype=np.int64)
    parts = np.array_split(numbers, num_threads * _PIECES)
    best = 0.0
    with ThreadPoolExecutor(num_threads) as pool:
        for _ in range(_PASSES):
            start = clock()
            list(pool.map(np.max, parts))
            best = max(best, numbers.nbytes / max(clock() - start, 1e-9))
    return best


@dataclass(frozen=True)
class Limits:
    """What no model on this machine can pass.

    Args:
        read_bandwidth: bytes per second from memory.
        mac_rates: multiply-adds per second; None where they are not known.
    """

    read_bandwidth: float
    mac_rates: MacRates | None

    def best(self, other: Limits) -> Limits:
        """The higher of two measurements: what disturbs one only lowers it."""
        rates = (self.mac_rates, other.mac_rates)
        both = [rate for rate in rates if rate is not None]
        return Limits(
            max(self.read_bandwidth, other.read_bandwidth),
            MacRates(max(r.narrow for r in both), max(r.wide for r in both)) if both else None,
        )


def limits(num_threads: int, backend: str) -> Limits:
    """Measure them.

    Args:
        num_threads: at least 1.
        backend: name of the backend in use; only compiled ones have rates.
    """
    rates = mac_rates(num_threads) if backend.startswith("native") else None
    return Limits(read_bandwidth(num_threads), rates)


def _cpuinfo(name: str, file: Path = Path("/proc/cpuinfo")) -> str:
    """What Linux says of the first processor under this name; empty where it says nothing."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 0


def _version() -> str:
    """The version, followed by the commit of a checkout, with a + where files differ from it."""
    folder = Path(__file__).parent
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    # Another project's repository may lie around an installation.
    if not commit or not _git(folder, "ls-files", Path(__file__).name):
        return __version__
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{__version__} {commit}{'+' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
