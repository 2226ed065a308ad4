from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers.engine import EngineFailedError, Firstword, run
from firstword.bench.cases import Case
from tests.weights.tiny_gguf import write_tiny_llama


def test_a_process_that_fails_says_why() -> None:
    assert run([sys.executable, "-c", "print(6 * 7)"]) == "42\n"
    with pytest.raises(EngineFailedError, match=r"ended with 3:\ncannot do"):
        run([sys.executable, "-c", "import sys; print('cannot do', file=sys.stderr); sys.exit(3)"])
    with pytest.raises(EngineFailedError, match="no-such-program"):
        run(["/no-such-program"])
    with pytest.raises(EngineFailedError, match="timed out"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.1)


def test_our_engine_runs_through_its_command_line(tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    engine = Firstword()
    engine.install()
    cases = [Case("prefill", 20), Case("decode", 4, 8, batch=2)]
    measured = engine.measure(model, cases, threads=1)
    assert set(measured.speeds) == set(cases)
    assert all(speed > 0 for speed in measured.speeds.values())
    assert measured.details["read_bandwidth"]
    assert engine.version
