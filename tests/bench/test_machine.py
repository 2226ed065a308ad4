from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from firstword import __version__
from firstword.bench import machine
from firstword.bench.machine import Limits
from firstword.ops.native_peak import MacRates


def test_the_fingerprint_names_the_machine_and_the_version() -> None:
    found = machine.fingerprint()
    assert found.cpu and found.system and found.python
    assert found.cores >= 1 and found.memory_bytes >= 0
    assert found.firstword.startswith(__version__)


def test_bandwidth_is_bytes_over_the_quickest_pass() -> None:
    ticks = itertools.count(step=0.5)
    assert machine.read_bandwidth(2, clock=lambda: next(ticks), piece=1024) == 2 * 1024 / 0.5


def test_the_kernel_says_what_the_processor_is(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Fast CPU: 2\nflags\t: avx2\nflags: none\n")
    assert machine._cpuinfo("model name", cpuinfo) == "Fast CPU: 2"
    assert machine._cpuinfo("flags", cpuinfo) == "avx2"
    assert machine._cpuinfo("flags", tmp_path / "missing") == ""


def test_without_git_there_is_only_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert machine.fingerprint().firstword == __version__


def test_load_is_a_number_or_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    load = machine.load_average()
    assert load is None or load >= 0

    def refuse() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", refuse)
    assert machine.load_average() is None


def test_of_two_measurements_the_higher_limits_count() -> None:
    slow, fast = Limits(3.0, MacRates(2.0, 5.0)), Limits(2.0, MacRates(4.0, 1.0))
    assert slow.best(fast) == Limits(3.0, MacRates(4.0, 5.0))
    assert slow.best(Limits(9.0, None)) == Limits(9.0, MacRates(2.0, 5.0))
    assert Limits(1.0, None).best(Limits(2.0, None)) == Limits(2.0, None)


def test_only_compiled_backends_have_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "read_bandwidth", lambda threads: 7.0)
    monkeypatch.setattr(machine, "mac_rates", lambda threads: MacRates(2.0, 1.0))
    assert machine.limits(1, "native (avx2)") == Limits(7.0, MacRates(2.0, 1.0))
    assert machine.limits(1, "reference (blas)") == Limits(7.0, None)
