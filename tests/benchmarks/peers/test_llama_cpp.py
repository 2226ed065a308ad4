from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.peers.engine import EngineFailedError
from benchmarks.peers.environment import Environment
from benchmarks.peers.llama_cpp import LlamaCpp
from firstword.bench.cases import Case

BENCH = """
import json, os, sys
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert args["-t"] == "2" and args["-r"] == "1", args
speed = 1000 * int(args["-d"]) + int(os.environ.get("SPEED", "1"))
rows = [(int(p), 0) for p in args["-p"].split(",")] + [(0, int(n)) for n in args["-n"].split(",")]
print(json.dumps([{"n_prompt": p, "n_gen": n, "avg_ts": speed + p + n} for p, n in rows if p + n]))
"""
BATCHED = """
import sys
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("a log line")
print('{"speed_tg": %s}' % (int(args["-npl"]) * int(args["-ntg"])))
"""


@pytest.fixture
def home(tmp_path: Path) -> Environment:
    """An installation whose programs are small scripts."""
    home = Environment("llama.cpp", (), tmp_path)
    programs = home.folder / "build" / "bin"
    programs.mkdir(parents=True)
    for name, source in (("llama-bench", BENCH), ("llama-batched-bench", BATCHED)):
        (programs / name).write_text(f"#!{sys.executable}{source}")
        (programs / name).chmod(0o755)
    (programs / "llama-completion").touch()
    return home


def test_cases_are_grouped_by_depth_and_found_again(home: Environment) -> None:
    peer = LlamaCpp("a setting", ("-fa", "off"), {"SPEED": "7"}, home)
    peer.install()  # nothing to do
    cases = [
        Case("prefill", 512),
        Case("prefill", 128),
        Case("decode", 64, 128),
        Case("decode", 10, 128, batch=16),
        Case("prefill", 64, batch=4),  # what it has no benchmark for
    ]
    speeds = peer.measure(Path("m.gguf"), cases, threads=2).speeds
    assert speeds == {cases[0]: 519, cases[1]: 135, cases[2]: 128_071, cases[3]: 160}
    assert peer.version == "b11434"


def test_no_result_is_a_failure(home: Environment) -> None:
    program = home.folder / "build" / "bin" / "llama-batched-bench"
    program.write_text(f"#!{sys.executable}\nprint('nothing')")
    with pytest.raises(EngineFailedError, match="no result:\nnothing"):
        LlamaCpp(home=home).measure(Path("m.gguf"), [Case("decode", 4, 8, 2)], threads=2)
