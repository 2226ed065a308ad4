from __future__ import annotations

from pathlib import Path

from benchmarks.kv.homes import clean_home


def test_a_clean_home_has_everything_but_the_kv(tmp_path: Path) -> None:
    for name in ("models", "panels", "kv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    with clean_home(tmp_path) as home:
        assert {entry.name for entry in home.iterdir()} == {"models", "panels"}
        assert (home / "panels" / "file").read_text() == "panels"
        (home / "kv").mkdir()
        (home / "kv" / "block").write_text("new")
        with clean_home(tmp_path) as other:
            assert not (other / "kv").exists()
    assert not home.exists()
    assert [entry.name for entry in (tmp_path / "kv").iterdir()] == ["file"]
    assert (tmp_path / "models" / "file").is_file(), "links go, not what they point to"


def test_a_home_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    with clean_home(tmp_path / "none") as home:
        assert list(home.iterdir()) == []
