"""No GGUF file, whatever its bytes, does more than fail with a CheckpointError."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TypedDict

import pytest

from firstword.quant import GGMLType
from firstword.weights.checkpoint import Checkpoint
from tests.weights.gguf_fields import Fields
from tests.weights.gguf_fuzz import SECONDS, TooSlow, attempt, mutations, truncations
from tests.weights.tiny_gguf import write_tiny_gemma3, write_tiny_llama

NUM_MUTATIONS = 2000


class Report(TypedDict):
    outcomes: dict[str, int]
    violations: list[str]
    slowest: float


def llama_f32(path: Path) -> Path:
    return write_tiny_llama(path, layers=1, chat_template="{{ messages[0]['content'] }}")


def llama_q8(path: Path) -> Path:
    return write_tiny_llama(path, dtype=GGMLType.Q8_0, tied=True, alignment=64)


def llama_q4_k(path: Path) -> Path:
    return write_tiny_llama(
        path, layers=1, hidden=256, intermediate=256, dtype=GGMLType.Q4_K, tied=True
    )


def gemma(path: Path) -> Path:
    return write_tiny_gemma3(path, layers=2, dtype=GGMLType.Q4_1)


FILES: list[Callable[[Path], Path]] = [llama_f32, llama_q8, llama_q4_k, gemma]


def run_python(*arguments: str) -> str:
    """Run Python in a process whose address space can be limited."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_batch(*arguments: str) -> Report:
    report: Report = json.loads(run_python("-m", "tests.weights.gguf_fuzz", *arguments))
    return report


@pytest.mark.parametrize("write", FILES, ids=lambda f: f.__name__)
def test_mutations_are_refused_or_load(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "m.gguf")
    count = NUM_MUTATIONS // len(FILES)
    report = run_batch(str(path), "mutations", str(FILES.index(write)), str(count))
    assert report["violations"] == []
    assert report["slowest"] < SECONDS
    assert sum(report["outcomes"].values()) == count
    # Both ends are reached: mutations that only ever fail would test the first check alone.
    assert report["outcomes"]["refused"] > count // 4
    assert report["outcomes"]["loaded"] > count // 20


@pytest.mark.parametrize("write", FILES, ids=lambda f: f.__name__)
def test_truncation_at_every_field_is_refused(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    path = write(tmp_path / "m.gguf")
    report = run_batch(str(path), "truncations")
    assert report["violations"] == []
    assert report["slowest"] < SECONDS
    assert report["outcomes"] == {"refused": len(list(truncations(path.read_bytes())))}


def test_the_limit_on_the_address_space_bites() -> None:
    program = """
from tests.weights.gguf_fuzz import SPARE_BYTES, limit_address_space
limit_address_space(0)
bytearray(SPARE_BYTES // 2)
try:
    bytearray(SPARE_BYTES + (4 << 20))  # the interpreter had some memory to spare
except MemoryError:
    print("refused")
"""
    assert run_python("-c", program) == "refused\n"


@pytest.mark.parametrize("error", [MemoryError, KeyError, TooSlow])
def test_any_other_error_counts_as_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def exercise(checkpoint: Checkpoint) -> None:
        raise error

    path = llama_f32(tmp_path / "m.gguf")
    assert attempt(path) == ("loaded", "")
    monkeypatch.setattr("tests.weights.gguf_fuzz.exercise", exercise)
    outcome, said = attempt(path)
    assert outcome == "violation" and error.__name__ in said


def test_fields_cover_the_file_without_a_gap(tmp_path: Path) -> None:
    content = gemma(tmp_path / "m.gguf").read_bytes()
    fields = Fields.of(content)
    assert fields[0].start == 0
    for before, after in pairwise(fields):
        assert before.start + before.size == after.start
    assert fields[-1].start + fields[-1].size == len(content)
    kinds = {f.kind for f in fields}
    assert {"count", "key", "array length", "dimension", "tensor type", "offset"} <= kinds


def test_mutations_of_one_seed_are_the_same(tmp_path: Path) -> None:
    content = llama_f32(tmp_path / "m.gguf").read_bytes()
    first = list(mutations(content, 1, 20))
    assert first == list(mutations(content, 1, 20))
    assert len(set(first)) > 15
