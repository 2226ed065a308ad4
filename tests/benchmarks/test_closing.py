from __future__ import annotations

import pytest

from benchmarks.closing import Closing


class Door(Closing):
    is_open = True

    def close(self) -> None:
        self.is_open = False


def test_it_is_open_within_and_closed_behind() -> None:
    with Door() as door:
        assert door.is_open
    assert not door.is_open


def test_it_is_closed_after_an_error_which_goes_on() -> None:
    door = Door()
    with pytest.raises(ZeroDivisionError), door:
        print(1 / 0)
    assert not door.is_open
