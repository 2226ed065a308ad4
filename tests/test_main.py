from __future__ import annotations

import subprocess
import sys

import firstword


def test_python_dash_m_is_the_command() -> None:
    command = [sys.executable, "-m", "firstword", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert firstword.__version__ in done.stdout
    assert done.stderr == ""
