from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from benchmarks.peers.real_text import pieces, write_tokens


def test_licences_and_sources_come_in_turn(tmp_path: Path) -> None:
    licences, sources = tmp_path / "licences", tmp_path / "sources"
    for folder, names in ((licences, ("A", "B")), (sources, ("a.py", "b.py", "c.py"))):
        folder.mkdir()
        for name in names:
            (folder / name).write_text(name)
    (licences / "C").symlink_to(licences / "A")
    assert list(pieces(licences, sources)) == ["A", "a.py", "B", "b.py", "c.py"]
    assert list(pieces(tmp_path / "missing", sources)) == ["a.py", "b.py", "c.py"]


def test_the_running_python_has_plenty() -> None:
    assert sum(len(text) for text in pieces(Path("/nowhere"))) > 1_000_000


def test_as_many_tokens_are_written_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "text.bin"
    texts = ["ab", "cd", "ef"]
    write_tokens(path, 3, lambda text: [ord(letter) for letter in text], iter(texts))
    tokens = array("i")
    tokens.frombytes(path.read_bytes())
    assert tokens.tolist() == [97, 98, 99]
    with pytest.raises(ValueError, match="has 6 tokens, but 7"):
        write_tokens(path, 7, lambda text: [ord(letter) for letter in text], iter(texts))
