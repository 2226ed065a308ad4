from __future__ import annotations

from pathlib import Path

import pytest

from firstword.plan import hardware
from firstword.plan.hardware import process_memory, processor_name, usable_cores, usable_memory


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 8 processors on 4 cores, 16 GiB available, without containers."""
    monkeypatch.setattr(hardware, "_affinity", lambda: set(range(8)))
    for cpu in range(8):
        write(
            tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list",
            f"{cpu % 4},{cpu % 4 + 4}",
        )
    write(tmp_path / "proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_threads_of_one_core_count_once(machine: Path) -> None:
    assert usable_cores(machine).count == 4
    assert "4 physical cores of 8" in usable_cores(machine).reason


def test_p08_affinity_limits(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_affinity", lambda: {0, 4, 5})
    assert usable_cores(machine).count == 2


def test_p08_a_quota_of_two_and_a_half_cores_gives_two(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "0::/box/inner")
    write(machine / "sys/fs/cgroup/box/inner/cpu.max", "max 100000")
    write(machine / "sys/fs/cgroup/box/cpu.max", "250000 100000")
    cores = usable_cores(machine)
    assert cores.count == 2
    assert "quota of 2.5" in cores.reason


def test_a_quota_below_one_core_still_gives_one(machine: Path) -> None:
    write(machine / "sys/fs/cgroup/cpu.max", "50000 100000")
    assert usable_cores(machine).count == 1


def test_quota_of_the_older_cgroups(machine: Path) -> None:
    write(machine / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000")
    write(machine / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert usable_cores(machine).count == 3


def test_no_files_at_all_counts_every_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "_affinity", lambda: {0, 1, 2})
    assert usable_cores(tmp_path).count == 3
    assert usable_memory(tmp_path).num_bytes > 0


def test_memory_is_what_is_available(machine: Path) -> None:
    assert usable_memory(machine).num_bytes == 16 * 2**30


def test_p13_memory_of_the_container_is_what_its_limit_leaves(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "0::/box")
    write(machine / "sys/fs/cgroup/box/memory.max", str(3 * 2**30))
    write(machine / "sys/fs/cgroup/box/memory.current", str(2**30))
    memory = usable_memory(machine)
    assert memory.num_bytes == 2 * 2**30
    assert "container" in memory.reason


def test_an_unlimited_container_does_not_count(machine: Path) -> None:
    write(machine / "sys/fs/cgroup/memory/memory.limit_in_bytes", str(2**63 - 4096))
    write(machine / "sys/fs/cgroup/memory.max", "max")
    assert usable_memory(machine).num_bytes == 16 * 2**30


def test_the_processor_is_named_by_itself_or_by_its_kind(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "some64")
    assert processor_name(machine) == "some64"
    write(machine / "proc/cpuinfo", "processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\n")
    assert processor_name(machine) == "Some CPU @ 2 GHz"


def test_the_memory_of_this_process_is_its_own_pages(tmp_path: Path) -> None:
    status = tmp_path / "proc/self/status"
    status.parent.mkdir(parents=True)
    status.write_text("Name:\tpython\nVmRSS:\t  900 kB\nRssAnon:\t     300 kB\n")
    assert process_memory(tmp_path) == 300 * 1024
    assert process_memory() > 2**20


def test_without_proc_the_peak_is_taken(tmp_path: Path) -> None:
    assert process_memory(tmp_path) > 2**20
