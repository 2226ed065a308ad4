from __future__ import annotations

from pathlib import Path

from benchmarks.kv_crash.damage import filled_files, flip, folder_bytes


def test_one_bit_is_flipped(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(3))
    flip(path, 10)
    assert path.read_bytes() == bytes([0, 4, 0])
    flip(path, 10)
    assert path.read_bytes() == bytes(3)


def test_files_at_any_depth_are_found_but_for_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(bytes(10))
    (tmp_path / "a").write_bytes(bytes(5))
    (tmp_path / "empty").touch()
    assert filled_files(tmp_path) == [tmp_path / "a", tmp_path / "b" / "c"]
    assert folder_bytes(tmp_path) == 15
    assert folder_bytes(tmp_path / "none") == 0
