from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from firstword.cli.doctor import Report, examine
from firstword.ops import native, self_check
from firstword.ops.native import usable_isas
from firstword.plan import hardware
from firstword.plan.hardware import UsableMemory, usable_cores
from tests.cli.commands import Finished, Terminal

_Usage = namedtuple("_Usage", "total used free")


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing is wrong."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "kept"))
    monkeypatch.delenv("FIRSTWORD_ISA", raising=False)
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage(10**12, 0, 10**11))
    monkeypatch.setattr(hardware, "usable_memory", lambda: UsableMemory(2**33, "plenty"))
    monkeypatch.setattr(native, "built_isas", lambda: [*usable_isas()])
    return tmp_path


def problem_of(end: Finished) -> str:
    """The one problem and its remedy, without line ends."""
    assert end.status == 1
    _, _, found = end.stdout.partition("\n\n")
    text = " ".join(found.split())
    assert text.count("problem: ") == text.count("remedy: ") == 1
    return text


def test_says_what_the_machine_gives(terminal: Terminal) -> None:
    end = terminal.run("doctor")
    shown = {line[:14].strip(): line[15:] for line in end.stdout.splitlines()}
    assert shown["kernels"] == shown["usable here"] == ", ".join(usable_isas())
    assert shown["in use"] == f"{usable_isas()[0]}, the best that is usable"
    assert shown["self-check"] == "same bits as the scalar kernels"
    assert shown["threads"].startswith(f"{usable_cores().count}: ")
    assert shown["memory"] == "8 GiB: plenty"
    assert shown["models"] == "93.1 GiB free in ~/kept/models"
    assert shown["BLAS"].startswith("numpy 2.")


def test_a_healthy_machine_has_status_zero(terminal: Terminal) -> None:
    end = terminal.run("doctor")
    assert end.stdout.endswith("\n\nno problem found\n")
    assert end.status == 0


def test_json_has_the_same_facts(terminal: Terminal) -> None:
    values = json.loads(terminal.run("doctor", "--json").stdout)
    assert values["kernels"]["built"] == values["kernels"]["usable"] == usable_isas()
    assert values["kernels"]["self_check"] is True
    assert values["memory"] == {"bytes": 2**33, "reason": "plenty"}
    assert values["models"]["free_bytes"] == 10**11
    assert values["blas"]["libraries"][0]["num_threads"] >= 1
    assert {"versions", "processor", "threads", "problems"} <= set(values)


def test_lines_fit_sixty_columns(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "processor_name", lambda: "Long Name(R) of a CPU @ 2 GHz " * 4)
    monkeypatch.setattr(hardware, "usable_memory", lambda: UsableMemory(2**28, "few " * 30))
    monkeypatch.setattr(self_check, "same_as_generic", lambda: False)
    lines = terminal.run("doctor").stdout.splitlines()
    assert sum(line.startswith("problem: ") for line in lines) == 2
    assert max(map(len, lines)) <= 60


def test_the_environment_names_the_instruction_set(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTWORD_ISA", "generic")
    script = "from firstword.cli.main import main; main()"
    # The choice is made once in a process: a new one has to make it.
    end = subprocess.run(
        [sys.executable, "-c", script, "doctor"], capture_output=True, text=True, check=False
    )
    assert "in use       generic, as FIRSTWORD_ISA says" in end.stdout


def test_an_unknown_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTWORD_ISA", "sse9")
    script = "from firstword.cli.main import main; main()"
    end = subprocess.run(
        [sys.executable, "-c", script, "doctor"], capture_output=True, text=True, check=False
    )
    assert end.returncode == 1
    assert "problem: FIRSTWORD_ISA is 'sse9'" in end.stdout
    assert "remedy:  unset FIRSTWORD_ISA" in end.stdout
    assert "self-check   not run" in end.stdout


def test_a_processor_without_vectors(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "built_isas", lambda: ["avx2", "generic"])
    monkeypatch.setattr(native.NativeOps, "isa", "generic")
    text = problem_of(terminal.run("doctor"))
    assert "no AVX2" in text and "processor of its host" in text


def test_wrong_bits(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "same_as_generic", lambda: False)
    end = terminal.run("doctor")
    assert "wrong bits" in end.stdout
    assert "remedy: set FIRSTWORD_ISA=generic" in problem_of(end)


def test_no_compiled_module(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    hidden = "firstword._native"
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == hidden else found(name)
    )
    assert "C++17 compiler" in problem_of(terminal.run("doctor"))


def test_a_module_that_does_not_load(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "firstword.ops.native", None)
    text = problem_of(terminal.run("doctor"))
    assert "does not load" in text and "C++17 compiler" in text


def test_little_memory(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "usable_memory", lambda: UsableMemory(2**28, "a small box"))
    text = problem_of(terminal.run("doctor"))
    assert "256 MiB of memory" in text and "512 MiB" in text and "container's limit" in text


def test_a_full_disk(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage(10**12, 10**12, 2**20))
    text = problem_of(terminal.run("doctor"))
    assert "1 MiB are free" in text and "FIRSTWORD_HOME" in text


def test_a_file_where_models_should_live(
    terminal: Terminal, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "kept").write_text("")
    assert "~/kept is no folder that you can write to" in problem_of(terminal.run("doctor"))


def test_no_home(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRSTWORD_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert "set FIRSTWORD_HOME" in problem_of(terminal.run("doctor"))


def test_is_quick() -> None:
    examine()
    start = time.perf_counter()
    examine()
    assert time.perf_counter() - start < 0.5


def test_only_a_path_may_be_longer() -> None:
    report = Report()
    report.add("models", "models", "1 GiB free in /" + "x" * 80, None)
    assert [len(line) for line in report.lines()][:2] == [28, 15 + 81]
