from __future__ import annotations

import pytest

from benchmarks.endurance.processes import Footprint
from benchmarks.endurance.report import Report
from benchmarks.endurance.soak import Row, judge


def rows(rss: list[float], itl: list[float], errors: int = 0) -> list[Row]:
    return [
        Row(
            100,
            errors,
            (Footprint(100_000_000, 3, 16), Footprint(round(megabytes * 1e6), 5, 7)),
            (0.2, 0.4),
            (seconds, 2 * seconds),
        )
        for megabytes, seconds in zip(rss, itl, strict=True)
    ]


@pytest.mark.parametrize(
    ("rss", "itl", "errors", "num_missed"),
    [
        ([300, 500, 600, 700, 700, 701, 702, 703, 703], [0.01] * 9, 0, 0),  # warms up, then stays
        ([500, 520, 540, 560, 580, 600, 620, 640, 660], [0.01] * 9, 0, 1),  # grows on
        ([500] * 9, [0.01, 0.01, 0.01, 0.01, 0.01, 0.012, 0.014, 0.016, 0.018], 0, 1),  # drifts
        ([500] * 9, [0.01] * 9, 3, 1),
    ],
)
def test_a_verdict(
    rss: list[float],
    itl: list[float],
    errors: int,
    num_missed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = Report()
    judge(report, rows(rss, itl, errors))
    assert report.num_missed == num_missed
    assert capsys.readouterr().out.count("MISSED") == num_missed
