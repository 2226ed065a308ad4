from __future__ import annotations

import pytest

from firstword.bench.serving.exchange import Exchange, Usage


def test_times_are_those_of_the_fields_definitions() -> None:
    exchange = Exchange("g", started=10, text_times=[12, 13, 15], ended=16, usage=Usage(5, 0, 9))
    assert exchange.ttft == 2
    assert exchange.gaps == [1, 2]
    assert exchange.e2e == 6
    assert exchange.tpot == pytest.approx((6 - 2) / (9 - 1))  # by usage, not by events
    assert exchange.is_complete


def test_an_exchange_without_an_answer_has_no_times() -> None:
    exchange = Exchange("g", started=10, error="HTTP 503")
    assert (exchange.ttft, exchange.e2e, exchange.tpot, exchange.gaps) == (None, None, None, [])
    assert not exchange.is_complete


def test_a_single_token_has_no_time_per_further_token() -> None:
    assert Exchange("g", text_times=[1], ended=1, usage=Usage(5, 0, 1)).tpot is None
