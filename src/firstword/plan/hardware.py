"""What this process may use of the machine: cores and memory, container limits included."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True)
class UsableCores:
    """How many threads to compute with, and why.

    Args:
        count: threads, at least 1.
        reason: the limit that decided, in words.
    """

    count: int
    reason: str


@dataclass(frozen=True)
class UsableMemory:
    """How many bytes can still be taken, and which limit says so."""

    num_bytes: int
    reason: str


def processor_name(root: Path = _ROOT) -> str:
    """What the processor calls itself; its architecture where it does not say."""
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return " ".join(value.split())
    return platform.machine() or "unknown"


def usable_cores(root: Path = _ROOT) -> UsableCores:
    """The least of: cores this process may run on, physical ones of them, the cgroup's quota.

    Args:
        root: where /proc and /sys are found; tests give a folder of their own.
    """
    allowed = _affinity()
    physical = _physical_cores(root, allowed)
    limits = [(physical, f"{physical} physical cores of {len(allowed)} usable processors")]
    quota = _cpu_quota(root)
    if quota is not None:
        limits.append((max(1, int(quota)), f"the container's quota of {quota:g} cores"))
    count, reason = min(limits)
    return UsableCores(max(1, count), reason)


def usable_memory(root: Path = _ROOT) -> UsableMemory:
    """The lesser of the machine's available memory and what the cgroup still grants."""
    available = _meminfo_available(root)
    limits = [(available, "memory available on the machine")]
    for folder in _cgroup_folders(root):
        for limit_file, usage_file in (
            ("memory.max", "memory.current"),
            ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
        ):
            limit, usage = _read_int(folder / limit_file), _read_int(folder / usage_file)
            if limit is not None and limit < 2**60:
                limits.append((max(0, limit - (usage or 0)), "memory left in the container"))
    num_bytes, reason = min(limits)
    return UsableMemory(num_bytes, reason)


def process_memory(root: Path = _ROOT) -> int:
    """Bytes that this process holds of its own: pages of mapped files are not counted."""
    for line in (_read(root / "proc/self/status") or "").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # no such system call here
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _physical_cores(root: Path, allowed: set[int]) -> int:
    """Processors that share a core count once: two threads on one core slow decoding down."""
    cores = set()
    for cpu in allowed:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = _read(topology / "thread_siblings_list")
        cores.add(siblings if siblings else f"cpu{cpu}")
    return max(1, len(cores))


def _cpu_quota(root: Path) -> float | None:
    """Cores that the cgroup grants; the tightest of this group and those above it."""
    quotas = []
    for folder in _cgroup_folders(root):
        words = (_read(folder / "cpu.max") or "").split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
            quotas.append(int(words[0]) / int(words[1]))
        quota = _read_int(folder / "cpu/cpu.cfs_quota_us")
        period = _read_int(folder / "cpu/cpu.cfs_period_us")
        if quota and quota > 0 and period:
            quotas.append(quota / period)
    return min(quotas) if quotas else None


def _cgroup_folders(root: Path) -> Iterator[Path]:
    """The cgroup of this process and all above it, up to the mount."""
    mount = root / "sys/fs/cgroup"
    path = ""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            path = line[3:].strip("/")
    folder = mount / path
    while True:
        yield folder
        if folder == mount or mount not in folder.parents:
            return
        folder = folder.parent


def _meminfo_available(root: Path) -> int:
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    # No /proc: half of what the system says it has, or 4 GiB where it says nothing.
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _read_int(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text and text.lstrip("-").isdigit() else None
