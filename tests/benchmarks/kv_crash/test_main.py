"""The matrix finds nothing, and would find something. Each runs in a process, which forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.weights.tiny_gguf import write_tiny_llama

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.kv_crash", *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_llama(tmp_path_factory.mktemp("model") / "tiny.gguf", context=2048))


def test_files_survive_a_little_of_everything() -> None:
    lines = run("files", "--scale", "0.01")
    assert len(lines) == 6
    assert not any(line.startswith("MISSED") for line in lines)


def test_engines_survive_a_little_of_everything(model: str) -> None:
    lines = run("engines", "--scale", "0.01", "--model", model)
    assert [line.split()[0] for line in lines] == ["ok"] * 3


def test_commands_survive_a_little_of_everything(model: str) -> None:
    lines = run("commands", "--scale", "0.02", "--model", model)
    assert [line.split()[0] for line in lines] == ["ok"] * 2
    assert not any(" 0 answers" in line or " 0 tokens from the disk" in line for line in lines)


@pytest.mark.deep
def test_files_survive_everything() -> None:
    assert run("files")


@pytest.mark.deep
def test_engines_survive_everything(model: str) -> None:
    assert run("engines", "--model", model)


@pytest.mark.deep
def test_commands_survive_everything(model: str) -> None:
    assert run("commands", "--model", model)
