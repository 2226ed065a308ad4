from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.peers import compare as module
from benchmarks.peers.compare import Plan, compare, warm_up, without_folders
from benchmarks.peers.engine import Engine
from benchmarks.peers.results import RowResult
from benchmarks.peers.rows import Row, parse_row
from firstword.bench.cases import Case
from firstword.bench.machine import Limits
from firstword.ops.native_peak import MacRates
from tests.benchmarks.peers.rivals import Rival

ROW = parse_row("m/decode:64@128")


def run(
    engines: Sequence[Engine],
    rounds: int,
    rows: Sequence[Row] = (ROW,),
    told: list[str] | None = None,
) -> list[RowResult]:
    said: list[str] = [] if told is None else told
    bandwidths = iter(range(100))
    plan = Plan(2, rounds, said.append, lambda t: Limits(next(bandwidths), MacRates(20.0, 10.0)))
    contenders = {row.id: engines for row in rows}
    return list(compare(rows, Path("m.gguf"), contenders, plan, Path("text.bin")))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLE_SECONDS", 0.0)


def test_engines_take_turns_and_who_goes_first_changes() -> None:
    told: list[str] = []
    calls: list[str] = []
    engines = [Rival(name, [5.0, 1.0, 2.0, 3.0], calls=calls) for name in "abc"]
    (result,) = run(engines, 3, told=told)
    assert calls == ["a", "b", "c"]
    assert [words.split()[-3] for words in told[3:]] == list("abcbcacab")
    assert [engine.speeds for engine in result.engines] == [pytest.approx([1.0, 2.0, 3.0])] * 3
    assert result.read_bandwidth == 1 and result.narrow_rate == 20.0 and result.wide_rate == 10.0
    assert len(result.load_averages) == 3 and result.row == ROW.id and result.threads == 2
    assert result.ours.details["num_bytes"] == 2


def test_an_engine_that_fails_is_left_out_and_says_why() -> None:
    ours, peer, none = Rival("us", [1.0] * 4), Rival("peer", [1.0, 2.0]), Rival("x", loads=False)
    (result,) = run([ours, peer, none], 3)
    assert result.engines[1].error == "there is no more"
    assert result.engines[2].error is not None and "load this file" in result.engines[2].error
    assert len(result.ours.speeds) == 3 and none.calls == ["x"]


def test_rows_share_engines_that_are_loaded_alike() -> None:
    rows = [parse_row(f"m/{case}") for case in ("prefill:512", "text:900", "decode:8@64x4")]
    rows.append(parse_row("m/decode:8@4096"))
    ours, single = Rival("us", [1.0] * 9), Rival("single", [1.0] * 9, most=1)
    results = run([ours, single], 1, rows)
    assert [result.row.split("/")[1] for result in results] == [
        "prefill:512",
        "decode:8@4096",
        "text:900",
        "decode:8@64x4",
    ]
    contexts = [(job.context, job.batch, job.text is not None) for job in ours.jobs]
    assert contexts == [(4106, 1, False), (902, 1, True), (74, 4, False)]
    assert len(single.jobs) == 2 and len(results[-1].engines) == 1


def test_the_first_run_is_short_unless_sequences_have_to_meet() -> None:
    assert warm_up(Case("prefill", 8192)) == Case("prefill", 128)
    assert warm_up(Case("decode", 64, 4096)) == Case("decode", 4, 4096)
    assert warm_up(Case("decode", 32, 128, 16)) == Case("decode", 32, 128, 16)


def test_settings_are_tried_without_measuring_limits() -> None:
    plan = Plan(2, 1, lambda text: None).without_limits()
    assert plan.measure_limits(2) == Limits(0.0, None)


def test_messages_name_files_but_not_folders() -> None:
    assert without_folders("in '/a/b-1/c.py', 3/4 of /x/y z/w:5") == "in 'c.py', 3/4 of y z/w:5"
