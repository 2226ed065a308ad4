from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.peers import __main__ as command
from firstword.bench.cases import Case
from tests.benchmarks.peers.rivals import Rival
from tests.weights.tiny_gguf import write_tiny_llama


def test_cases_are_written_as_words() -> None:
    assert command.parse_cases("prefill:512, decode:64@128,decode:32@128x16") == (
        Case("prefill", 512),
        Case("decode", 64, 128),
        Case("decode", 32, 128, 16),
    )
    with pytest.raises(ValueError, match="'read:5'"):
        command.parse_cases("read:5")


def test_ours_is_first_and_each_peer_has_settings() -> None:
    names = [engine.name for engine in command.chosen_engines("llama.cpp,ik_llama.cpp", False)]
    assert names == ["firstword", "llama.cpp", "ik_llama.cpp"]
    assert len(command.chosen_engines("llama.cpp", True)) > 3
    with pytest.raises(ValueError, match="no peer 'other'"):
        command.chosen_engines("other", False)


def test_results_are_written_as_a_page_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_tiny_llama(tmp_path / "tiny.gguf")
    monkeypatch.setattr(command, "Firstword", lambda: Rival("firstword", [3.0] * 2))
    monkeypatch.setattr(command, "PEERS", {"peer": [Rival("peer", [2.0] * 2)]})
    arguments = ["--peers", "peer", "--rounds", "2", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["peers", str(model), *arguments])
    command.main()
    (page,), (report,) = (list((tmp_path / "out").glob(f"*-peers.{e}")) for e in ("md", "json"))
    assert page.read_text() in capsys.readouterr().out
    assert json.loads(report.read_text())["models"][0]["ratios"]["prefill 512"] == 1.5
