from __future__ import annotations

from pathlib import Path

from benchmarks.kv_crash.tally import Tally


def test_nothing_at_all_is_not_good() -> None:
    assert not Tally().is_good


def test_answers_are_added_up() -> None:
    tally = Tally()
    tally.answer(True, 7)
    tally.answer(True, 0)
    assert tally.is_good
    assert str(tally).startswith("2 answers with 7 tokens from the disk, 0 wrong, 0 failed")
    tally.answer(False, 1)
    assert not tally.is_good and tally.num_wrong == 1


def test_a_folder_may_hold_so_much_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(10))
    tally = Tally()
    tally.answer(True, 0)
    tally.look_at(tmp_path, 10)
    assert tally.is_good
    tally.look_at(tmp_path, 9)
    assert not tally.is_good and tally.num_beyond_cap == 1
