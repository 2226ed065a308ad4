from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.peers.session import EngineFailedError
from benchmarks.serving import __main__ as command
from benchmarks.serving.servers import Launch

ROOT = Path(__file__).parents[3]
SERVE = """
import asyncio, sys
from tests.bench.serving import scripted_server as scripted
def script(request):
    if request.path == "/health":
        yield scripted.json_reply({})
    else:
        yield from scripted.usual(request)
server = scripted.ScriptedServer(script)
async def serve():
    listening = await asyncio.start_server(server._serve, "127.0.0.1", int(sys.argv[1]))
    await listening.serve_forever()
asyncio.run(serve())
"""


@dataclass(frozen=True)
class Scripted:
    """The scripted server in a process of its own."""

    name: str
    installs: bool = True
    version: str = "7"

    def install(self) -> None:
        if not self.installs:
            raise EngineFailedError(f"{self.name}: no compiler")

    def command(self, launch: Launch) -> Sequence[str]:
        assert launch.keys_file is not None
        assert launch.keys_file.read_text().split() == list(command.API_KEYS)
        return [sys.executable, "-c", SERVE, str(launch.port)]


def test_unknown_names_are_refused() -> None:
    assert command.chosen("a,", {"a": 1, "b": 2}) == [1]
    with pytest.raises(ValueError, match="no 'c'"):
        command.chosen("c", {"a": 1})


def test_a_comparison_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = [Scripted("firstword"), Scripted("llama.cpp"), Scripted("broken", False)]
    monkeypatch.setattr(command, "SERVERS", {server.name: server for server in servers})
    monkeypatch.setattr(command, "engine_rate", lambda *arguments: 1000.0)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    model = tmp_path / "m.gguf"
    model.touch()
    arguments = [
        "serving", "--model", str(model), "--rounds", "1", "--out", str(tmp_path), "--day", "today",
        "--experiments", "many,prefix-once", "--servers", "firstword,llama.cpp,broken",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", arguments)
    command.main()
    page = (tmp_path / "today-serving.md").read_text()
    assert page == capsys.readouterr().out.removesuffix("\n")
    assert "broken: no compiler" in page and "| firstword bench | 1 |  | 1,000 |" in page
    report = json.loads((tmp_path / "today-serving.json").read_text())
    assert set(report["medians"]["many"]) == {"firstword", "llama.cpp", "firstword bench"}
    assert report["medians"]["many"]["firstword"]["failed"] == 0
    assert report["versions"] == {"firstword": "7", "llama.cpp": "7"}
