"""The peers that are Python packages: what they are asked, and how their answers are read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers.engine import Engine
from benchmarks.peers.environment import Environment
from benchmarks.peers.ik_llama_cpp import IkLlamaCpp
from benchmarks.peers.openvino_genai import OpenVINOGenAI
from firstword.bench.cases import Case

CASES = [
    Case("prefill", 512),
    Case("prefill", 8, depth=128),
    Case("decode", 64, 128),
    Case("decode", 64, 128, batch=2),
]
PYTHON = """
import json, sys
assert sys.argv[1] == "-I" and sys.argv[2].endswith(".py")
job = json.loads(sys.argv[3])
assert job["threads"] == 2
print("a log line")
print(json.dumps([case["num_tokens"] for case in job["cases"]]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Environment:
    """An environment whose interpreter answers with the number of tokens."""
    home = Environment("peer", (), tmp_path)
    home.python.parent.mkdir(parents=True)
    home.python.write_text(f"#!{sys.executable}{PYTHON}")
    home.python.chmod(0o755)
    (home.folder / "installed.txt").touch()
    return home


@pytest.mark.parametrize(("peer", "count"), [(IkLlamaCpp, 3), (OpenVINOGenAI, 2)])
def test_the_driver_gets_the_cases_it_can_run(
    peer: type[IkLlamaCpp] | type[OpenVINOGenAI], count: int, home: Environment
) -> None:
    engine: Engine = peer(home=home)
    engine.install()
    speeds = engine.measure(Path("m.gguf"), CASES, threads=2).speeds
    assert len(speeds) == count
    assert all(speed == case.num_tokens for case, speed in speeds.items())
    assert engine.version


@pytest.mark.parametrize("name", ["drive_ik_llama_cpp", "drive_openvino_genai"])
def test_drivers_import_nothing_of_ours(name: str) -> None:
    folder = Path(__file__).parents[3] / "benchmarks" / "peers" / "drivers"
    text = (folder / f"{name}.py").read_text()
    assert "import firstword" not in text and "from firstword" not in text
    assert "benchmarks" not in text.replace("llama-bench", "")
