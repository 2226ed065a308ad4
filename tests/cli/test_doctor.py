from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from firstword.cli.doctor import Report
from firstword.ops import native, self_check
from firstword.ops.native import usable_isas
from firstword.plan import hardware
from firstword.plan.hardware import UsableMemory, usable_cores
from firstword.weights import catalogue
from firstword.weights.store import Store
from tests.cli.commands import Finished, Terminal
from tests.fake_index import add_model

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


def test_only_a_path_may_be_longer() -> None:
    report = Report()
    report.add("models", "models", "1 GiB free in /" + "x" * 80, None)
    assert [len(line) for line in report.lines()][:2] == [28, 15 + 81]


CONTENTS = {"tiny:1b": b"one" * 10_000, "tiny:2b": b"two" * 10_000, "tiny:3b": b"three"}


@pytest.fixture
def kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Paths of two models that are here in full; the catalogue knows a third."""
    entries = [add_model(home / "index", name, content) for name, content in CONTENTS.items()]
    monkeypatch.setattr(catalogue, "CATALOGUE", {entry.name: entry for entry in entries})
    paths = {}
    for entry in entries[:2]:
        paths[entry.name] = Store().models / entry.name.replace(":", "-") / entry.file
        paths[entry.name].parent.mkdir(parents=True)
        paths[entry.name].write_bytes(CONTENTS[entry.name])
    return paths


def test_verify_compares_every_model_that_is_here(
    terminal: Terminal, kept: dict[str, Path]
) -> None:
    end = terminal.run("doctor", "--verify")
    assert end.stdout.splitlines() == [
        "ok             tiny:1b",
        "ok             tiny:2b",
        "",
        "no problem found",
    ]
    assert (end.status, end.stderr) == (0, "")


def test_verify_names_the_damaged_model_and_the_way_out(
    terminal: Terminal, kept: dict[str, Path]
) -> None:
    kept["tiny:2b"].write_bytes(CONTENTS["tiny:2b"][:-1] + b"?")
    end = terminal.run("doctor", "--verify")
    assert end.stdout.splitlines()[:2] == ["ok             tiny:1b", "damaged        tiny:2b"]
    text = problem_of(end)
    assert "problem: tiny:2b is damaged: its sha256 is " in text
    assert (
        "remedy: remove ~/kept/models/tiny-2b/tiny model.gguf and fetch it again: "
        "firstword pull tiny:2b"
    ) in text


def test_verify_of_one_model_reads_no_other(terminal: Terminal, kept: dict[str, Path]) -> None:
    kept["tiny:2b"].write_bytes(b"short")
    assert terminal.run("doctor", "--verify", "Tiny:1B").status == 0
    assert "it has 5 bytes, not 30000" in problem_of(terminal.run("doctor", "--verify", "tiny:2b"))


def test_verify_as_json(terminal: Terminal, kept: dict[str, Path]) -> None:
    kept["tiny:2b"].write_bytes(b"short")
    end = terminal.run("doctor", "--verify", "--json")
    values = json.loads(end.stdout)
    states = [(model["name"], model["state"], model["path"]) for model in values["models"]]
    assert states == [
        ("tiny:1b", "ok", str(kept["tiny:1b"])),
        ("tiny:2b", "damaged", str(kept["tiny:2b"])),
    ]
    assert len(values["problems"]) == 1
    assert end.status == 1


def test_verify_says_where_nothing_can_be_compared(terminal: Terminal, home: Path) -> None:
    (home / "my.gguf").write_bytes(b"GGUF")
    end = terminal.run("doctor", "--verify", str(home / "my.gguf"))
    assert end.stdout.startswith("unknown ")
    assert "knows its checksum" in " ".join(end.stdout.split())
    assert end.status == 0


def test_verify_of_a_model_that_is_not_here(terminal: Terminal, kept: dict[str, Path]) -> None:
    end = terminal.run("doctor", "--verify", "tiny:3b")
    assert end.stderr.endswith("tiny:3b is not on this machine yet: firstword pull tiny:3b\n")
    assert end.status == 1


def test_verify_with_no_model_here(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "CATALOGUE", {})
    end = terminal.run("doctor", "--verify")
    assert "none of the catalogue is in ~/kept/models" in " ".join(end.stdout.split())
    assert end.status == 0


def test_verify_shows_its_progress_on_a_terminal(
    terminal: Terminal, kept: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    end = terminal.run("doctor", "--verify")
    assert "verifying tiny:1b: 100% of 29.3 KiB" in end.stderr
    assert end.stdout.startswith("ok ")


def test_a_model_without_verify_is_refused(terminal: Terminal) -> None:
    end = terminal.run("doctor", "tiny:1b")
    assert end.status == 2
    assert "'tiny:1b'" in end.stderr and "--verify" in end.stderr
