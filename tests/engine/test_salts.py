from __future__ import annotations

import pytest

from firstword.engine import salts
from firstword.engine.salts import Salts


def test_a_salt_is_known_when_it_comes_again() -> None:
    known = Salts()
    assert [known.is_given_again(s) for s in ("a", "b", "a", "\ud800", "\ud800")] == [
        False,
        False,
        True,
        False,
        True,
    ]


def test_no_salt_is_always_known() -> None:
    assert Salts().is_given_again("")


def test_salts_given_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salts, "MAX_SALTS", 2)
    known = Salts()
    for salt in ("a", "b", "a", "c"):
        known.is_given_again(salt)
    assert known.is_given_again("a")
    assert not known.is_given_again("b")
