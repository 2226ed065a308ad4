from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.peers.compare import Comparison, compare
from benchmarks.peers.tables import markdown, to_dict
from firstword.bench.cases import Case
from firstword.bench.machine import Fingerprint
from tests.benchmarks.peers.rivals import Rival

MACHINE = Fingerprint("A processor", ("avx2", "fma"), 2, 2**34, "Linux", "3.11", "0.1.0 abc")


@pytest.fixture
def comparison() -> Comparison:
    engines = [Rival("us", [30.0, 10.0, 20.0]), Rival("peer", [8.0] * 3), Rival("broken")]
    cases = [Case("prefill", 512), Case("decode", 64, 128)]
    return compare(engines, Path("m.gguf"), cases, threads=2, rounds=3, progress=lambda text: None)


def test_the_page_holds_medians_spread_ratio_and_limit(comparison: Comparison) -> None:
    page = markdown([comparison], MACHINE, "2026-01-01")
    assert "A processor (avx2, fma), 2 cores, 16 GiB, Linux" in page
    assert "firstword 0.1.0 abc, native (avx2)." in page
    row = "| decode 64 after 128 | 20.0 (10.0-30.0) | 8.0 (8.0-8.0) | 2.50x (3.75x) | 50% |"
    assert row in page.splitlines()
    assert "broken did not run: it does not load this file" in page


def test_the_page_warns_where_the_machine_was_busy(comparison: Comparison) -> None:
    comparison.load_averages = [0.5, 0.5, 0.5]
    assert "busy" not in markdown([comparison], MACHINE, "2026-01-01")
    comparison.load_averages = [5.0, 6.0, 0.5]
    assert "**Other programs kept the machine busy.**" in markdown([comparison], MACHINE, "today")


def test_the_json_holds_every_round(comparison: Comparison) -> None:
    report = json.loads(json.dumps(to_dict([comparison], MACHINE, "now")))
    (model,) = report["models"]
    assert model["ratios"]["prefill 512"] == 2.5
    assert model["engines"][0]["speeds"]["prefill 512"] == [30.0, 10.0, 20.0]
    assert model["engines"][2]["error"]
    assert len(model["load_averages"]) == 3
