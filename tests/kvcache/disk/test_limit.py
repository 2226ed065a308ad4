"""The limit: as given, as the environment says, or by what is free."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from firstword.errors import ConfigError
from firstword.kvcache.disk.limit import default_disk_bytes, kv_disk_bytes


def free(number: int) -> object:
    return lambda folder: shutil._ntuple_diskusage(10 * number, 9 * number, number)


def test_what_is_given_counts_before_the_environment(tmp_path: Path) -> None:
    assert kv_disk_bytes(7, tmp_path, {"FIRSTWORD_KV_DISK": "5"}) == 7
    assert kv_disk_bytes(0, tmp_path, {"FIRSTWORD_KV_DISK": "5"}) == 0
    assert kv_disk_bytes(None, tmp_path, {"FIRSTWORD_KV_DISK": "2G"}) == 2 * 2**30
    assert kv_disk_bytes(None, tmp_path, {"FIRSTWORD_KV_DISK": "0"}) == 0
    with pytest.raises(ConfigError, match="FIRSTWORD_KV_DISK is 'much'"):
        kv_disk_bytes(None, tmp_path, {"FIRSTWORD_KV_DISK": "much"})


def test_the_default_is_a_tenth_of_what_is_free_up_to_ten_gigabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "not" / "yet"
    monkeypatch.setattr("shutil.disk_usage", free(50_000_000_000))
    assert kv_disk_bytes(None, home, {"FIRSTWORD_KV_DISK": ""}) == 5_000_000_000
    monkeypatch.setattr("shutil.disk_usage", free(500_000_000_000))
    assert default_disk_bytes(home) == 10_000_000_000


def test_what_blocks_take_already_does_not_lower_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", free(1_000_000))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a.kv").write_bytes(bytes(100_000))
    assert default_disk_bytes(tmp_path) == 110_000


def test_a_disk_that_does_not_answer_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("shutil.disk_usage", fail)
    assert default_disk_bytes(tmp_path) == 0
