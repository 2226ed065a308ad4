from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from benchmarks.peers.session import EngineFailedError, Job, Session, read_memory
from firstword.bench.cases import Case
from tests.benchmarks.peers.rivals import Rival

JOB = Job(Path("m.gguf"), 2, 700, 3)


def python(source: str, timeout: float = 60) -> Session:
    return Session([sys.executable, "-c", source], timeout=timeout)


def test_arguments_are_the_same_for_every_driver() -> None:
    assert JOB.arguments == ("m.gguf", "2", "700", "3", "-")


def test_cases_are_timed_one_after_the_other() -> None:
    with Rival("one", [40.0, 50.0]).open(JOB) as session:
        first = session.time(Case("decode", 8, 128, 2))
        second = session.time(Case("prefill", 8))
    assert first.speed == pytest.approx(40.0) and second.speed == pytest.approx(50.0)
    assert first.details["tokens"] == 16 and "seconds" not in first.details


def test_a_failure_says_why() -> None:
    with pytest.raises(EngineFailedError, match="no such model"):
        python("print('FAILED no such model')")
    with pytest.raises(EngineFailedError, match=r"ended with 3:\ncannot"):
        python("import sys; print('cannot', file=sys.stderr); sys.exit(3)")
    with pytest.raises(EngineFailedError, match=r"ended with 1:\nlast words"):
        python("print('last words'); raise SystemExit(1)")
    with pytest.raises(EngineFailedError, match="no-such-program"):
        Session(["/no-such-program"])
    with Rival("one", []).open(JOB) as session, pytest.raises(EngineFailedError, match="no more"):
        session.time(Case("prefill", 8))


def test_one_that_has_ended_fails_at_the_next_case() -> None:
    with python("print('READY')") as session:
        session._process.wait()
        with pytest.raises(EngineFailedError, match="ended with 0"):
            session.time(Case("prefill", 8))


def test_one_that_takes_too_long_is_ended() -> None:
    with pytest.raises(EngineFailedError, match="ended with -9"):
        python("import time; time.sleep(60)", timeout=0.1)


def test_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name: x\nVmHWM:\t    20 kB\nVmRSS:\t    10 kB\n")
    memory = read_memory(status)
    assert memory is not None and (memory.resident, memory.peak) == (10_240, 20_480)
    status.write_text("Name: x\n")
    assert read_memory(status) is None
    assert read_memory(tmp_path / "missing") is None
    with Rival("one", [1.0]).open(JOB) as session:
        own = session.memory()
    assert (own is not None and own.peak > 0) or not os.path.exists("/proc/self/status")
