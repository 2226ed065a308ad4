"""Counts of tokens add up."""

from __future__ import annotations

from firstword.server.events import Usage


def test_usage_adds_field_by_field() -> None:
    assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)
