"""What has gone is remembered, in a file that stays small and may be broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstword.kvcache.disk.departures import FILE_NAME, read_departures, record_departures


def key(i: int) -> bytes:
    return i.to_bytes(16, "little")


def test_the_last_cause_counts(tmp_path: Path) -> None:
    assert read_departures(tmp_path) == {}
    record_departures(tmp_path, [key(1), key(2)], "evicted")
    record_departures(tmp_path, [key(2)], "expired")
    assert read_departures(tmp_path) == {key(1): "evicted", key(2): "expired"}


def test_a_torn_file_is_read_and_gone_on_with(tmp_path: Path) -> None:
    record_departures(tmp_path, [key(1)], "evicted")
    with (tmp_path / FILE_NAME).open("ab") as file:
        file.write(b"half")
    assert read_departures(tmp_path) == {key(1): "evicted"}
    record_departures(tmp_path, [key(2)], "expired")
    assert read_departures(tmp_path) == {key(1): "evicted", key(2): "expired"}


def test_unknown_causes_say_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(key(1) + b"\xff")
    assert read_departures(tmp_path) == {}


def test_the_oldest_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firstword.kvcache.disk.departures.MAX_ENTRIES", 3)
    for i in range(7):
        record_departures(tmp_path, [key(i)], "evicted")
    assert list(read_departures(tmp_path)) == [key(4), key(5), key(6)]
    record_departures(tmp_path, map(key, range(100)), "expired")
    assert list(read_departures(tmp_path)) == [key(97), key(98), key(99)]
