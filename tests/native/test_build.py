"""How the module was compiled, from the build's own list of commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_COMMAND = re.compile(r"^build \S+\.o: \S+ (\S+/csrc/\S+\.cpp) .*?^  FLAGS = (.*?)$", re.M | re.S)


def test_warnings_are_errors_in_the_development_build() -> None:
    """In all of our sources; what comes with nanobind is not ours."""
    found = sorted(ROOT.glob("build/cp*/build.ninja"))
    if not found:
        pytest.skip("the module was not built here by ninja: scripts/install dev builds it")
    newest = max(found, key=lambda path: path.stat().st_mtime)
    flags = dict(_COMMAND.findall(newest.read_text()))
    sources = {str(p) for p in ROOT.glob("csrc/*/*.cpp") if p.parent.name not in ("bench", "tests")}
    assert sources <= set(flags), sources - set(flags)
    for source in sources:
        assert {"-Werror", "-Wall", "-Wextra", "-Wconversion"} <= set(flags[source].split()), source
