from __future__ import annotations

import json
from pathlib import Path

from benchmarks.kv.results import Findings, Goal, Table


def test_a_goal_is_met_on_its_side_of_the_bound() -> None:
    assert Goal("share", 0.02, 0.02).is_met and not Goal("share", 0.021, 0.02).is_met
    assert Goal("speed", 2.0, 2, at_least=True).is_met
    assert not Goal("speed", 1.9, 2, at_least=True).is_met
    assert not Goal("speed", None, 2, at_least=True).is_met
    assert Goal("speed", 1.9, 2, at_least=True).line == "| speed | 1.9 | ≥ 2 | no |"
    assert Goal("speed", None, 2).line == "| speed | not measured | ≤ 2 | |"


def test_what_was_not_measured_fails_nothing() -> None:
    missing, missed = Goal("a", None, 1), Goal("b", 3, 1)
    assert Findings("x", "X", [missing]).is_met
    assert not Findings("x", "X", [missing, missed]).is_met


def test_both_files_are_written(tmp_path: Path) -> None:
    table = Table("Speed", ["who", "tokens", "seconds"], [("ours", 12_345, 0.12345)], ["A note."])
    found = Findings("agents", "A trace", [Goal("share", 0.5, 1)], [table], {"turns": 3})
    page = found.write(tmp_path / "out", "2030-01-02")
    assert (tmp_path / "out" / "2030-01-02-kv-agents.md").read_text() == page
    assert page.startswith("# A trace, 2030-01-02") and "| share | 0.5 | ≤ 1 | yes |" in page
    assert "## Speed" in page and "| ours | 12,345 | 0.123 |" in page and "A note." in page
    fields = json.loads((tmp_path / "out" / "2030-01-02-kv-agents.json").read_text())
    assert fields["turns"] == 3 and fields["goals"][0]["is_met"] is True
    found.write(tmp_path / "out", "2030-01-02", "other")
    assert (tmp_path / "out" / "2030-01-02-other.md").is_file()
