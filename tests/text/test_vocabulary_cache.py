from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from firstword.text import vocabulary_cache
from firstword.text.vocabulary_cache import VocabularyCache, open_tokenizer
from tests.text.vocabularies import byte_level


@dataclass
class Model:
    """A model file of which only the vocabulary is asked for."""

    path: Path
    identity: bytes
    tokenizer_metadata: Mapping[str, object]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setenv("FIRSTWORD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(vocabulary_cache, "MIN_TOKENS", 0)
    monkeypatch.setattr(vocabulary_cache, "FREE_SHARE", 0.0)
    return Model(tmp_path / "m.gguf", b"state 1", byte_level(["a b"]))


def kept(model: Model) -> list[Path]:
    return sorted(VocabularyCache().folder.glob("*"))


def test_a_later_start_does_not_read_the_vocabulary_again(model: Model) -> None:
    ids = open_tokenizer(model).encode("ab 字")
    model.tokenizer_metadata = {}
    assert open_tokenizer(model).encode("ab 字") == ids
    assert len(kept(model)) == 1


def test_another_state_of_the_file_takes_the_place_of_the_old(model: Model) -> None:
    open_tokenizer(model)
    (before,) = kept(model)
    model.identity = b"state 2"
    open_tokenizer(model)
    (after,) = kept(model)
    assert before != after


@pytest.mark.parametrize("content", [b"", b"short", bytes(5000)])
def test_a_damaged_file_is_made_again(model: Model, content: bytes) -> None:
    ids = open_tokenizer(model).encode("ab 字")
    (path,) = kept(model)
    whole = path.read_bytes()
    for damage in (content, whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damage)
        assert open_tokenizer(model).encode("ab 字") == ids
        assert path.read_bytes() == whole


def test_nothing_is_kept_when_not_wanted(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    open_tokenizer(model, keep=False)
    assert not kept(model)
    monkeypatch.setattr(vocabulary_cache, "MIN_TOKENS", 10_000)
    open_tokenizer(model)
    assert not kept(model)


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(model: Model) -> None:
    folder = VocabularyCache().folder
    folder.parent.mkdir()
    folder.write_text("a file is in the way")
    assert open_tokenizer(model).encode("ab")


def test_a_full_disk_is_left_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_cache, "FREE_SHARE", 1.1)
    open_tokenizer(model)
    assert not kept(model)


def test_the_least_recently_used_give_way(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary_cache, "MAX_FILES", 2)
    for name in ("a", "b", "c"):
        model.path = model.path.with_name(name)
        open_tokenizer(model)
    assert VocabularyCache().usage().count == 2


def test_usage_and_clear(model: Model) -> None:
    assert VocabularyCache().clear().count == 0
    open_tokenizer(model)
    usage = VocabularyCache().usage()
    assert usage.count == 1
    assert usage.num_bytes > 0
    assert VocabularyCache().clear() == usage
    assert not kept(model)
