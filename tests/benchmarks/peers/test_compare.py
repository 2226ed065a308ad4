from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.peers.compare import Comparison, compare, install
from benchmarks.peers.engine import Engine
from firstword.bench.cases import Case
from tests.benchmarks.peers.rivals import Rival

CASE = Case("decode", 64, 128)


def run(*engines: Engine, rounds: int) -> Comparison:
    return compare(
        engines, Path("m.gguf"), [CASE], threads=2, rounds=rounds, progress=lambda text: None
    )


def test_the_ratio_is_our_median_over_the_best_peers() -> None:
    ours, slow, fast = Rival("us", [30.0, 10.0, 20.0]), Rival("a", [1.0] * 3), Rival("b", [8.0] * 3)
    result = run(ours, slow, fast, rounds=3)
    assert result.best_peer(CASE) == ("b", 8.0)
    assert result.ratio(CASE) == pytest.approx(2.5)
    assert result.ratio(CASE, max) == pytest.approx(30 / 8)
    assert len(result.load_averages) == 3


@pytest.mark.parametrize(("loads", "busy"), [([2.1, 9.0, 2.0], False), ([5.0, 2.0, 4.0], True)])
def test_a_busy_machine_is_known_by_its_load(loads: list[float | None], busy: bool) -> None:
    result = run(Rival("us", [1.0]), rounds=1)
    result.load_averages = loads
    assert result.is_busy is busy
    result.load_averages = [None]
    assert not result.is_busy


def test_who_goes_first_changes_with_the_round() -> None:
    calls: list[str] = []
    engines = [Rival(name, [1.0] * 3, calls=calls) for name in "abc"]
    run(*engines, rounds=3)
    assert "".join(calls) == "abcbcacab"


def test_an_engine_that_fails_is_left_out_and_says_why() -> None:
    ours, peer = Rival("us", [4.0] * 3), Rival("peer", [2.0])
    result = run(ours, peer, rounds=3)
    assert peer.calls == ["peer", "peer"]
    assert result.engines[1].error is not None and "load this file" in result.engines[1].error
    assert result.engines[0].speeds[CASE] == [4.0] * 3


def test_without_peers_there_is_no_ratio() -> None:
    result = run(Rival("us", [4.0]), rounds=1)
    assert result.best_peer(CASE) is None and result.ratio(CASE) is None


def test_what_cannot_be_installed_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Rival("kept")
    assert install([kept, Rival("broken", installs=False)]) == [kept]
    assert "broken is left out: no compiler" in capsys.readouterr().out
