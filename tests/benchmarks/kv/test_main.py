from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from benchmarks.kv import __main__ as command
from benchmarks.kv.results import Findings, Goal


@pytest.mark.parametrize("name", command.EXPERIMENTS)
def test_every_experiment_has_defaults_and_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = command.parse_arguments([name, "--threads", "1"])
    assert options.experiment == name and options.threads == 1 and options.name is None
    with pytest.raises(SystemExit):
        command.parse_arguments([name, "--help"])
    assert command.EXPERIMENTS[name].title in capsys.readouterr().out


@pytest.mark.parametrize(("value", "status"), [(1.0, 0), (3.0, 1)])
def test_the_exit_status_says_whether_goals_are_met(
    value: float, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(options: argparse.Namespace) -> Findings:
        return Findings("own", "Its own", [Goal("it", value, 2)])

    own = command.Experiment("its own", lambda parser: None, measure)
    monkeypatch.setattr(command, "EXPERIMENTS", {"own": own})
    monkeypatch.setattr(
        sys, "argv", ["kv", "own", "--out", str(tmp_path), "--day", "2030-01-02", "--name", "mine"]
    )
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == status and (tmp_path / "2030-01-02-mine.md").is_file()
