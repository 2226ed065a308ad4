from __future__ import annotations

from firstword.server.drain import Drain


def test_it_begins_once() -> None:
    drain = Drain(60)
    assert (drain.has_begun, drain.seconds_left) == (False, 60)
    drain.begin()
    left = drain.seconds_left
    drain.begin()
    assert drain.has_begun
    assert 0 < drain.seconds_left <= left <= 60


def test_time_that_is_over_is_not_below_zero() -> None:
    drain = Drain(0)
    drain.begin()
    assert drain.seconds_left == 0
