from __future__ import annotations

from benchmarks.peers.results import EngineResult, Results, RowResult
from benchmarks.peers.session import Memory
from benchmarks.peers.tables import markdown

MACHINE = {
    "cpu": "A processor",
    "features": ["avx2", "fma"],
    "cores": 2,
    "memory_bytes": 2**34,
    "system": "Linux",
    "firstword": "0.1.0 abc",
}
WORK = {
    "tokens": 32,
    "steps": 32,
    "num_bytes": 10,
    "linear_macs": 30.0,
    "narrow_macs": 10.0,
    "weight_bytes": 10**9,
    "kv_bytes": 10**8,
    "backend": "native (avx2)",
}
ID = "1b:q4_0/decode:32@128"


def results(loads: list[float | None]) -> Results:
    ours = EngineResult(
        "firstword", "", "0.1", [30.0, 10.0, 20.0], dict(WORK), Memory(10**9, 2**31)
    )
    peer = EngineResult("peer", "fast", "2", [8.0] * 3)
    broken = EngineResult("broken", "", "3", error="many words\nno | file\n")
    row = RowResult(ID, "m.gguf", 2, "now", [ours, peer, broken], 400.0, 2e9, 1e9, loads)
    other = RowResult("m/prefill:5", "m.gguf", 2, "now", [EngineResult("firstword", "", "0.1")])
    return Results(MACHINE, {ID: row, "m/prefill:5": other})


def test_the_page_holds_medians_spread_ratio_limit_and_verdict() -> None:
    lines = markdown(results([1.0]), "2026-01-01").splitlines()
    assert lines[0] == "# Engines side by side, 2026-01-01"
    assert (
        "A processor (avx2, fma), 2 cores, 16 GiB, Linux; firstword 0.1.0 abc, native" in lines[2]
    )
    assert (
        f"| {ID} | 3 | 20.0 (10.0-30.0) | peer fast | 8.0 (8.0-8.0) | 2.50x (3.75x) | "
        "40.0 (memory) | 50% | 1.5x or 90% of the limit | yes |"
    ) in lines
    assert "| m/prefill:5 | 0 |  |  |  |  |  |  |  |  |" in lines
    assert f"| {ID} | broken (3) |  |  |  | did not run: no / file |" in lines
    assert f"| {ID} | 1,000 MB | 2,147 MB | 1,000 MB | 100 MB | 1,365 MB | yes |" in lines
    assert f"| {ID} | now | 2 | 0.0 | 2, 1 | 1.0 to 1.0 |" in lines


def test_the_page_warns_where_the_machine_was_busy() -> None:
    assert "busy" not in markdown(results([0.5]), "today")
    assert f"It concerns: {ID}." in markdown(results([5.0]), "today").replace("** ", "** ")
