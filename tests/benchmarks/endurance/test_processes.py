from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.endurance.processes import Footprint, PeakMemory, children, cpu_seconds, memory


def test_a_process_is_seen_from_outside() -> None:
    seen = Footprint.of(os.getpid())
    assert seen.rss > 10e6 and seen.threads >= 1 and seen.fds >= 3
    with open(os.devnull):
        assert Footprint.of(os.getpid()).fds == seen.fds + 1
    rss, pss, anonymous = memory(os.getpid())
    assert rss >= pss > anonymous > 0
    assert cpu_seconds(os.getpid()) > 0


def test_children_are_found() -> None:
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.pid in children(os.getpid())
        assert process.stdin is not None
        process.stdin.close()


def test_the_peak_is_kept() -> None:
    with PeakMemory([os.getpid()]) as peak:
        before = memory(os.getpid())[0]
        block = b"x" * 60_000_000
        while peak.rss < before + len(block) // 2:
            pass
    assert peak.pss > peak.anonymous > len(block)
