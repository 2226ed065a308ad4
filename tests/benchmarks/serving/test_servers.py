from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.peers.session import EngineFailedError
from benchmarks.serving import servers
from benchmarks.serving.servers import (
    FirstwordServer,
    Launch,
    LlamaServer,
    RunningServer,
    free_port,
)

READY = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Health(BaseHTTPRequestHandler):
    tries = 0
    def do_GET(self):
        Health.tries += 1
        self.send_response(200 if Health.tries > 2 else 503)
        self.end_headers()
    def log_message(self, *words): pass
HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY


@dataclass(frozen=True)
class Scripted:
    """A server that is a few lines of Python."""

    program: str
    name: str = "scripted"
    version: str = "1"

    def install(self) -> None: ...

    def command(self, launch: Launch) -> Sequence[str]:
        return [sys.executable, "-c", self.program, str(launch.port)]


def launch(tmp_path: Path) -> Launch:
    return Launch(Path("m.gguf"), free_port(), tmp_path / "keys", threads=2)


def test_both_servers_get_the_same_room(tmp_path: Path) -> None:
    wanted = Launch(Path("m.gguf"), 8123, tmp_path / "keys", threads=2, slots=4, context=1000)
    ours = " ".join(FirstwordServer(("--flag",)).command(wanted))
    assert "-m firstword serve m.gguf" in ours and ours.endswith("--flag")
    assert "--port 8123" in ours and "--threads 2" in ours and "--max-num-seqs 4" in ours
    theirs = " ".join(LlamaServer(LlamaCpp()).command(wanted))
    assert "llama-server -m m.gguf" in theirs
    assert "--port 8123" in theirs and "--threads 2" in theirs and "-np 4 -c 4000" in theirs


def test_a_server_is_ready_when_it_says_so(tmp_path: Path) -> None:
    with RunningServer(Scripted(READY), launch(tmp_path)) as running:
        assert urlopen(running.url.removesuffix("/v1") + "/health").status == 200


@pytest.mark.parametrize(
    ("program", "why"), [("raise SystemExit('no such model')", "no such model"), (READY, "ready")]
)
def test_a_server_that_does_not_come_up_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    monkeypatch.setattr(servers, "START_SECONDS", 0.0 if program == READY else 20)
    with pytest.raises(EngineFailedError, match=why):
        RunningServer(Scripted(program), launch(tmp_path))


def test_a_server_that_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "STOP_SECONDS", 0.05)
    running = RunningServer(Scripted(STUBBORN), launch(tmp_path))
    running.close()
    with pytest.raises(OSError):
        urlopen(running.url)


def test_a_program_that_is_missing_is_an_engine_that_failed(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Missing(Scripted):
        def command(self, launch: Launch) -> Sequence[str]:
            return [str(tmp_path / "nothing")]

    with pytest.raises(EngineFailedError, match="nothing"):
        RunningServer(Missing(""), launch(tmp_path))
