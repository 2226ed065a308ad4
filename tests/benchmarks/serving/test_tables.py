from __future__ import annotations

from benchmarks.serving.compare import Results
from benchmarks.serving.tables import markdown


def test_the_page_says_what_is_met_and_what_is_missing() -> None:
    results = Results(
        machine={"cpu": "a processor", "features": ["avx2"], "cores": 2, "system": "Linux"},
        versions={"firstword": "0.1", "llama.cpp": "b1"},
        problems=["two-keys, llama.cpp: a request was not answered"],
    )
    results.add("many", "firstword", {"tokens_per_second": 1300.0, "ttft_p50": 0.5})
    results.add("many", "llama.cpp", {"tokens_per_second": 100.0, "ttft_p50": 1.0})
    page = markdown(results, "2026-11-30")
    assert page.startswith("# Servers side by side, 2026-11-30")
    assert "| 16 clients: tokens/s over llama-server's | 13 | ≥ 4 | yes |" in page
    assert "| 16 clients: median TTFT over llama-server's | 0.5 | ≤ 0.333 | no |" in page
    assert "| second request's TTFT over the first's | not measured | ≤ 0.2 | |" in page
    assert "| firstword | 1 | 1,300 | 0.5 |" in page
    assert "- two-keys, llama.cpp: a request was not answered" in page
    assert "prefix-many:" not in page
