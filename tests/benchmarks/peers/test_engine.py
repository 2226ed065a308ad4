from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers.engine import Firstword, run
from benchmarks.peers.session import EngineFailedError, Job
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


def test_our_engine_stays_loaded_and_tells_its_work(tmp_path: Path) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    text = tmp_path / "text.bin"
    text.write_bytes(b"".join(i.to_bytes(4, "little") for i in range(60)))
    engine = Firstword()
    engine.install()
    assert engine.version and engine.can_run(Case("prefill", 4, 4, 4))
    with engine.open(Job(model, 1, 40, 2, text)) as session:
        read = session.time(Case("prefill", 20))
        written = session.time(Case("decode", 4, 8, batch=2))
        memory = session.memory()
    assert read.speed > 0 and read.details["tokens"] == 20 and read.details["steps"] == 1
    assert written.speed > 0 and written.details["steps"] == 4
    for name in ("num_bytes", "linear_macs", "narrow_macs", "weight_bytes", "kv_bytes"):
        assert isinstance(written.details[name], int | float)
    assert memory is None or memory.resident > 0
