"""What keys have used, across idleness and debt."""

from __future__ import annotations

from firstword.engine.shares import KeyShares


def test_a_key_that_comes_back_has_saved_nothing_up() -> None:
    shares = KeyShares()
    shares.join("busy")
    shares.charge("busy", 10_000)
    shares.join("new")
    assert 0 < shares.used("busy") - shares.used("new") < 1_000


def test_a_key_that_used_more_keeps_its_debt() -> None:
    shares = KeyShares()
    shares.join("modest")
    shares.join("greedy")
    shares.charge("greedy", 10_000)
    shares.leave("greedy")
    shares.join("greedy")
    assert shares.used("greedy") - shares.used("modest") == 10_000


def test_one_alone_owes_nothing_to_those_who_come_later() -> None:
    shares = KeyShares()
    shares.join("alone")
    shares.charge("alone", 10**6)
    shares.leave("alone")
    shares.join("other")
    shares.charge("other", 100)
    shares.join("alone")
    assert shares.used("alone") - shares.used("other") < 1_000


def test_leaving_and_coming_back_gains_nothing() -> None:
    shares = KeyShares()
    shares.join("steady")
    shares.join("toggling")
    for _ in range(50):
        shares.charge("toggling", 100)
        shares.leave("toggling")
        shares.join("toggling")
    assert shares.used("toggling") - shares.used("steady") == 5_000


def test_a_key_is_owed_while_one_that_asks_for_more_has_used_no_less() -> None:
    shares = KeyShares()
    for _ in range(3):
        shares.join("flood")
    shares.join("one")
    assert shares.is_owed("one")
    assert not shares.is_owed("flood")
    shares.charge("one", 10_000)
    assert not shares.is_owed("one")


def test_whether_keys_are_in_use_is_remembered() -> None:
    shares = KeyShares()
    shares.join("")
    assert not shares.is_shared
    shares.join("x")
    shares.leave("x")
    assert shares.is_shared
    assert shares.num_busy == 1
