"""Processes die where they are told to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import os, sys, time
from pathlib import Path
from benchmarks.kv_crash.process import killed_after, killed_in_call
path = Path(sys.argv[1])
def work():
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwritev(fd, [b"ab", b"cd"], 0)
    os.unlink(path)
print(killed_in_call(work, int(sys.argv[2])), path.exists() and path.read_text())
print(killed_after(lambda: time.sleep(60), 0.01))
"""


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, "-9 False"), (1, "-9 ab"), (2, "-9 abcd"), (3, "0 False")],
)
def test_a_process_dies_in_the_call_of_that_number(
    tmp_path: Path, number: int, expected: str
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "file"), str(number)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert ended.stdout.splitlines() == [expected, "-9"]
