from __future__ import annotations

import io
import sys
from array import array
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.peers.engine import DRIVERS


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as drivers import it."""
    monkeypatch.syspath_prepend(str(DRIVERS))
    return import_module("serve")


def test_cases_are_answered_until_there_are_no_more(
    serve: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Model:
        def __init__(self, job: object) -> None:
            self.job = job

        def time(self, case: tuple[str, int, int, int]) -> dict[str, object]:
            return {"case": case, "job": repr(self.job)}

    arguments = ["driver", "m.gguf", "2", "700", "3", "-", "a", "b"]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(sys, "stdin", io.StringIO("decode 4 8 2\nprefill x\n"))
    serve.serve(Model)
    said = [line for line in capsys.readouterr().out.splitlines() if line]
    assert said[0] == "READY"
    assert '"case": ["decode", 4, 8, 2]' in said[1] and "settings=('a', 'b')" in said[1]
    assert said[2].startswith("FAILED ValueError: ")


def test_random_prompts_are_fresh_unless_they_are_kept(serve: ModuleType) -> None:
    prompts = serve.Prompts("-", range(100, 10_000))
    first, second = prompts.fresh(50), prompts.fresh(50)
    assert first != second and set(first + second) <= set(range(100, 10_000))
    kept = prompts.kept(50)
    assert prompts.kept(50) == kept and prompts.kept(50, 1) != kept


def test_prompts_are_cut_from_a_text(serve: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "text.bin"
    file.write_bytes(array("i", range(200)).tobytes())
    prompts = serve.Prompts(str(file), range(5))
    assert prompts.fresh(3) == [0, 1, 2]
    assert prompts.fresh(3) == [97, 98, 99]
    assert prompts.fresh(8) == [194, 195, 196, 197, 198, 199, 0, 1]
