from __future__ import annotations

import json

import pytest

from firstword import LLM
from firstword.bench.cases import Case
from firstword.bench.limits import WorkCounter
from firstword.bench.machine import Fingerprint
from firstword.bench.measure import Measurement, Phase
from firstword.bench.report import Row, Setting, evaluate, render, to_dict
from firstword.bench.timing import Span
from firstword.ops.native_peak import MacRates

SETTING = Setting(
    model="a model of a rather long name " * 3,
    file_name="model.gguf",
    file_bytes=123_456_789,
    backend="native (avx2)",
    threads=2,
    repeat=3,
    machine=Fingerprint("A processor", ("avx2",), 2, 2**34, "Linux 6", "3.11", "0.1.0 abc"),
    read_bandwidth=20e9,
    mac_rates=MacRates(260e9, 120e9),
    load_average=(0.25, None),
    time="2026-01-01T00:00:00+00:00",
)


def measured(case: Case, seconds: list[float], tokens: int, steps: int) -> Measurement:
    phase: Phase = "decode" if case.kind == "decode" else "prefill"
    spans = [Span(s, s * 0.9, tokens, steps) for s in seconds]
    return Measurement(case, phase, spans)


@pytest.fixture
def rows(llm: LLM) -> list[Row]:
    measurements = [
        measured(Case("prefill", 8192, 32768, 16), [1.0, 4.0, 2.0], tokens=100_000, steps=9),
        measured(Case("decode", 10, 32), [1.0, 2.0, 3.0], tokens=10, steps=10),
        measured(Case("chat", 500, 100), [0.25, 0.25, 0.25], tokens=100, steps=1),
        Measurement(Case("chat", 500, 100), "decode", [Span(5.0, 4.9, 499, 499)] * 3),
    ]
    counter = WorkCounter(llm.checkpoint, llm.kv_spec)
    return evaluate(measurements, counter, 20e9, SETTING.mac_rates)


def test_a_row_sets_the_median_against_the_work(llm: LLM, rows: list[Row]) -> None:
    decode = rows[1]
    counter = WorkCounter(llm.checkpoint, llm.kv_spec)
    work = counter.decode_step(decode.case)
    assert decode.speed == 5.0
    assert decode.step_bytes == work.num_bytes
    assert decode.share_of_limit == pytest.approx(work.num_bytes / 20e9 / 0.2)
    assert decode.gmacs == pytest.approx(work.macs / 0.2 / 1e9)
    assert decode.outside_share == pytest.approx(0.1)
    wide = work.linear_macs - work.narrow_macs
    assert decode.share_of_peak == pytest.approx((work.narrow_macs / 260e9 + wide / 120e9) / 0.2)
    unknown = evaluate([measured(decode.case, [1.0], 10, 10)], counter, 20e9, None)
    assert unknown[0].share_of_peak is None
    prefill = rows[0]
    assert prefill.share_of_limit is None and prefill.step_bytes == 0
    assert prefill.gmacs == pytest.approx(counter.prefill(prefill.case).macs / 2.0 / 1e9)


def test_the_report_fits_80_columns(rows: list[Row]) -> None:
    text = render(rows, SETTING)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "50,000" in text and "20.0 GB/s, 260/120 GMAC/s" in text
    assert "0.2 before, ? after" in text


def test_the_report_says_how_long_a_chat_takes(rows: list[Row]) -> None:
    text = render(rows, SETTING)
    assert "100 tokens in and 500 out takes 5.25 s: 0.25 s to the first word" in text
    assert "chat 100+500: decode" in text
    assert "A chat" not in render(rows[:2], SETTING)


def test_prompts_of_several_depths_are_split_into_their_parts(llm: LLM) -> None:
    counter = WorkCounter(llm.checkpoint, llm.kv_spec)
    cases = [Case("prefill", 32, depth) for depth in (0, 64, 128)]
    works = [counter.prefill(case) for case in cases]
    seconds = [2e-12 * work.linear_macs + 8e-12 * work.attention_macs for work in works]
    measurements = [measured(c, [s] * 3, 32, 1) for c, s in zip(cases, seconds, strict=True)]
    rows = evaluate(measurements, counter, 20e9, None)
    text = render(rows, SETTING)
    assert "linear layers 500 GMAC/s, attention 125;" in text
    share = 8e-12 * works[2].attention_macs / seconds[2]
    assert f"attention takes {share:.0%} of prefill 32 after 128." in text
    split = to_dict(rows, SETTING)["seconds_per_mac"]
    assert split == {"linear": pytest.approx(2e-12), "attention": pytest.approx(8e-12)}


def test_the_json_holds_every_repeat(rows: list[Row]) -> None:
    report = json.loads(json.dumps(to_dict(rows, SETTING)))
    assert report["format"] == 1
    assert report["setting"]["machine"]["cpu"] == "A processor"
    assert report["results"][1]["speeds"] == [10.0, 5.0, 10 / 3]
    assert report["results"][1]["speed"] == 5.0
    assert report["results"][0]["case"]["batch"] == 16
