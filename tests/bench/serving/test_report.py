from __future__ import annotations

import json
from dataclasses import replace

from firstword.bench.machine import Fingerprint
from firstword.bench.serving.exchange import Exchange, Usage
from firstword.bench.serving.report import Setting, render, to_dict
from firstword.bench.serving.statistics import Limits
from firstword.bench.serving.workloads import Sizes

MACHINE = Fingerprint("a processor", ("avx2",), 2, 2**34, "Linux 6", "3.11.0", "0.1.0 abc")
SETTING = Setting(
    base_url="http://127.0.0.1:8000/v1",
    model="tiny",
    workload="two-keys",
    sizes=Sizes(requests=2),
    limits=Limits(ttft=0.5),
    warm_up=2,
    machine=MACHINE,
    load_average=(0.1, None),
    time="2026-11-30T00:00:00+00:00",
)
EXCHANGES = [
    Exchange("alone", 0, 0, 0.0, [0.2, 0.3], 0.3, Usage(1150, 1000, 64), "text", "length"),
    Exchange("flood", 1, 0, 0.0, [0.7, 0.9], 1.0, Usage(150, 0, 64), "text", "length"),
    Exchange("flood", 1, 0, 0.5, error="HTTP 429", detail="the queue is full: " + 90 * "x"),
    Exchange("flood", 1, 0, 0.5, left=True),
]


def test_the_report_says_what_was_measured() -> None:
    text = render(EXCHANGES, SETTING)
    assert "alone: 1 of 1 requests complete, 0 failed, 0.3 s" in text
    assert "flood: 1 of 3 requests complete, 1 failed, 1 left, 1.0 s" in text
    assert "1,150 in (1,000 cached), 64 out" in text
    assert "goodput 3.33 requests per s, 100% of all" in text
    assert "  TTFT          200.0      200.0      200.0      200.0      200.0" in text
    assert "key 1" in text and "1 x HTTP 429: the queue is full" in text
    assert max(map(len, text.splitlines())) <= 80


def test_long_names_keep_their_end() -> None:
    first = render([], replace(SETTING, model="/a/very/long/path" * 9 + "/model.gguf")).split("\n")[
        0
    ]
    assert len(first) <= 80 and "model.gguf at http://127.0.0.1:8000/v1" in first


def test_an_interrupted_run_says_so() -> None:
    assert "Interrupted" in render(EXCHANGES, replace(SETTING, was_interrupted=True))
    assert "Interrupted" not in render(EXCHANGES, SETTING)


def test_nothing_measured_is_a_report_too() -> None:
    failed = Exchange("g", error="no connection")
    text = render([failed], replace(SETTING, limits=Limits(), sizes=Sizes(rate=2.0)))
    assert "0 of 1 requests complete" in text and "TTFT" not in text and "goodput" not in text
    assert "2 conversations/s" in text
    assert render([], SETTING)


def test_the_dictionary_is_json_with_every_request() -> None:
    report = json.loads(json.dumps(to_dict(EXCHANGES, SETTING)))
    assert report["format"] == 1
    assert report["setting"]["machine"]["cpu"] == "a processor"
    assert [group["name"] for group in report["groups"]] == ["alone", "flood"]
    assert report["groups"][1]["errors"] == {"HTTP 429": 1}
    assert [key["name"] for key in report["keys"]] == ["key 0", "key 1"]
    assert len(report["requests"]) == 4
    first = report["requests"][0]
    assert first["ttft"] == 0.2 and first["usage"]["cached"] == 1000 and "text" not in first
