from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quality import texts
from firstword.text.tokenizer import Tokenizer
from firstword.weights.checkpoint import open_checkpoint
from tests.weights.tiny_gguf import write_tiny_llama


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = write_tiny_llama(tmp_path_factory.mktemp("texts") / "m.gguf")
    return Tokenizer.from_gguf(open_checkpoint(path).tokenizer_metadata, str(path))


@pytest.fixture
def three_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short files of each kind."""
    kinds = {}
    for kind in ("a", "b", "c"):
        files = [tmp_path / f"{kind}{i}" for i in range(2)]
        for i, file in enumerate(files):
            file.write_text(f"{kind} {i} " * 30, encoding="utf-8")
        kinds[kind] = files
    monkeypatch.setattr(texts, "sources", lambda: kinds)


@pytest.mark.usefixtures("three_kinds")
def test_windows_take_turns_and_run_on_into_the_next_file(tokenizer: Tokenizer) -> None:
    windows = texts.windows(tokenizer, 7, size=150)
    assert [len(window) for window in windows] == [150] * 7
    found = [tokenizer.decode(window) for window in windows]
    starts = [text.lstrip()[:3] for text in found]
    assert [start[0] for start in starts] == ["a", "b", "c", "a", "b", "c", "a"]
    assert starts[0] != starts[3]
    assert "a 0" in found[0] and "a 1" in found[0]
    assert windows[:4] == texts.windows(tokenizer, 4, size=150)
    assert all(window[: len(tokenizer.bos_ids)] == tokenizer.bos_ids for window in windows)


@pytest.mark.usefixtures("three_kinds")
def test_too_little_text_is_an_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(texts.NoTextError, match="a window of 5000 is too long"):
        texts.windows(tokenizer, 1, size=5000)


def test_the_text_of_this_machine_is_found_or_missed_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(texts, "LICENCES", tmp_path)
    with pytest.raises(texts.NoTextError, match="apt install base-files"):
        texts.sources()
    (tmp_path / "GPL-9").write_text("Copy it.")
    (tmp_path / "GPL").symlink_to(tmp_path / "GPL-9")
    found = texts.sources()
    assert found["licences"] == [tmp_path / "GPL-9"]
    assert any(path.name == "argparse.py" for path in found["standard library"])
    assert any(path.name == "tour.md" for path in found["own pages"])


def test_all_tokens_but_the_first_are_scored() -> None:
    assert texts.scored([5, 6, 7]) == [6, 7]
