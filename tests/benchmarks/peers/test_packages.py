"""The peers that are Python packages: what they are asked, and which cases they can run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.make_model import SHAPES, write_model
from benchmarks.peers import onnxruntime_genai
from benchmarks.peers.engine import DRIVERS
from benchmarks.peers.environment import Environment
from benchmarks.peers.ik_llama_cpp import IkLlamaCpp
from benchmarks.peers.onnxruntime_genai import OnnxRuntimeGenAI
from benchmarks.peers.openvino_genai import AVX2_SETTINGS, SETTINGS, OpenVINOGenAI
from benchmarks.peers.session import EngineFailedError, Job
from firstword.bench.cases import Case

PYTHON = """
import json, os, sys
assert sys.argv[1].endswith(".py")
print("READY", flush=True)
kind, tokens, depth, batch = input().split()
print("RESULT", json.dumps({"tokens": int(tokens), "seconds": 1, "words": sys.argv[2:]}))
"""
JOB = Job(Path("m.gguf"), 2, 600)
CASES = [
    Case("prefill", 512),
    Case("decode", 64, 128),
    Case("prefill", 8, depth=128),
    Case("decode", 64, 128, batch=2),
    Case("prefill", 8, batch=2),
]


@pytest.fixture
def home(tmp_path: Path) -> Environment:
    """An environment whose interpreter answers with the number of tokens."""
    home = Environment("peer", (), tmp_path)
    home.python.parent.mkdir(parents=True)
    home.python.write_text(f"#!{sys.executable}{PYTHON}")
    home.python.chmod(0o755)
    (home.folder / "installed.txt").touch()
    return home


@pytest.mark.parametrize("peer", [IkLlamaCpp, OpenVINOGenAI])
def test_the_driver_gets_the_job_and_the_settings(
    peer: type[IkLlamaCpp] | type[OpenVINOGenAI], home: Environment
) -> None:
    engine = peer(("one", "two"), home=home)
    engine.install()
    assert engine.version and engine.setting == "one two" and engine.name
    with engine.open(JOB) as session:
        timing = session.time(CASES[0])
    assert timing.speed == 512
    assert timing.details["words"] == ["m.gguf", "2", "600", "1", "-", "one", "two"]


def test_openvino_is_held_to_avx2_by_its_environment(
    home: Environment,
) -> None:
    (home.python).write_text(
        f"#!{sys.executable}{PYTHON}".replace("sys.argv[2:]", "os.environ['ONEDNN_MAX_CPU_ISA']")
    )
    for engine in AVX2_SETTINGS:
        with replace(engine, home=home).open(JOB) as session:
            assert session.time(CASES[0]).details["words"] == "AVX2"
    assert [e.setting for e in AVX2_SETTINGS] == [e.setting for e in SETTINGS]


def test_each_runs_the_cases_that_it_can() -> None:
    able = {e.name: [e.can_run(c) for c in CASES] for e in (IkLlamaCpp(), OpenVINOGenAI())}
    assert able["ik_llama.cpp"] == [True, True, True, True, False]
    assert able["OpenVINO GenAI"] == [True, True, False, False, False]
    assert [OnnxRuntimeGenAI().can_run(c) for c in CASES] == able["OpenVINO GenAI"]


def test_a_model_is_built_once_of_the_files_values(
    home: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "tiny.gguf"
    write_model(model, SHAPES["tiny"], "Q8_0")
    commands: list[list[str]] = []

    def build(command: list[str]) -> None:
        commands.append(command)
        assert (Path(command[2]) / "model.safetensors").is_file()
        Path(command[3]).mkdir()
        (Path(command[3]) / "genai_config.json").touch()

    monkeypatch.setattr(onnxruntime_genai, "run", build)
    engine = OnnxRuntimeGenAI(home)
    for _ in range(2):
        with engine.open(Job(model, 2, 600)) as session:
            words = session.time(CASES[0]).details["words"]
    assert isinstance(words, list) and words[0] == commands[0][3] and commands[0][4] == "4"
    assert len(commands) == 1 and not Path(commands[0][2]).exists()


def test_a_file_that_is_no_model_is_no_checkpoint(home: Environment, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"nothing")
    with pytest.raises(EngineFailedError, match="no checkpoint of floats"):
        OnnxRuntimeGenAI(home).open(Job(tmp_path / "m.gguf", 2, 600))


@pytest.mark.parametrize("path", sorted(DRIVERS.glob("*.py")), ids=lambda path: path.stem)
def test_drivers_import_nothing_of_ours(path: Path) -> None:
    text = path.read_text()
    if path.stem != "drive_firstword":
        assert "import firstword" not in text and "from firstword" not in text
    assert "import benchmarks" not in text and "from benchmarks" not in text
