"""What the command line does before any command."""

from __future__ import annotations

import subprocess
import sys


def test_a_start_does_not_walk_through_its_objects_again_and_again() -> None:
    code = """
import gc, firstword
before = gc.get_threshold()[0]
import firstword.cli
print(before, gc.get_threshold()[0])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    library, command_line = map(int, found.stdout.split())
    assert library < 10_000 <= command_line, "the library leaves the process's settings alone"
