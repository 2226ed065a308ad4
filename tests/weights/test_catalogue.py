from __future__ import annotations

import os
from pathlib import Path

import pytest

from firstword.errors import DownloadError, LicenseError, ModelNotFoundError
from firstword.weights import catalogue
from firstword.weights.catalogue import (
    CATALOGUE,
    DEFAULT_MODEL,
    CatalogueEntry,
    Verdict,
    find,
    parse_reference,
    resolve,
)
from firstword.weights.download import WheelSource
from firstword.weights.hub import HubSource
from firstword.weights.progress import NullReporter
from firstword.weights.store import Store
from tests.fake_index import STRICT, RecordingReporter, add_model, use_index


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home of models"
    monkeypatch.setenv("FIRSTWORD_HOME", str(folder))
    monkeypatch.delenv("FIRSTWORD_ACCEPT_LICENSE", raising=False)
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    use_index(monkeypatch, folder)
    return folder


def know(monkeypatch: pytest.MonkeyPatch, *entries: CatalogueEntry) -> None:
    monkeypatch.setattr(catalogue, "CATALOGUE", {entry.name: entry for entry in entries})


def test_every_entry_is_complete() -> None:
    assert DEFAULT_MODEL in CATALOGUE
    for name, entry in CATALOGUE.items():
        assert name == entry.name == name.lower()
        assert entry.description and entry.size > 0
        assert entry.license.url.startswith("https://")
        if isinstance(entry.source, WheelSource):
            assert entry.tested and entry.file.endswith(".gguf") and len(entry.sha256) == 64
            assert all("==" in part.requirement for part in entry.source.parts)
        else:
            assert not entry.tested
            assert entry.source.file is not None and entry.source.file.endswith("Q4_K_M.gguf")


def test_the_default_model_is_the_free_chat_model() -> None:
    entry = CATALOGUE[DEFAULT_MODEL]
    assert entry.chat and not entry.license.needs_acceptance
    assert not CATALOGUE["gemma3:270m"].chat


@pytest.mark.parametrize("reference", [None, "smollm2:135m", "SmolLM2:135M"])
def test_a_model_that_is_here_is_found_by_name(home: Path, reference: str | None) -> None:
    path = home / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(ModelNotFoundError, match=r"firstword pull smollm2:135m$"):
        resolve(reference, download=False)
    os.truncate(path, 98_362_432)  # a hole of the right size
    assert resolve(reference, download=False) == path


def test_a_model_is_verified_where_it_lies(home: Path, tmp_path: Path) -> None:
    content = b"the weights" * 5000
    entry, store = add_model(tmp_path / "index", "tiny:1b", content), Store()
    assert entry.verify(store, RecordingReporter()) is None
    path = home / "models" / "tiny-1b" / "tiny model.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert entry.verify(store, RecordingReporter()) == Verdict(path, is_known=True)
    path.write_bytes(content[:-1])
    verdict = entry.verify(store, RecordingReporter())
    assert verdict is not None and verdict.damage == "it has 54999 bytes, not 55000"


def test_of_a_hub_file_no_checksum_is_known(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = next(e for e in CATALOGUE.values() if isinstance(e.source, HubSource))
    monkeypatch.setattr(catalogue, "find_cached", lambda _: None)
    assert entry.verify(Store(), RecordingReporter()) is None
    monkeypatch.setattr(catalogue, "find_cached", lambda _: home / "m.gguf")
    verdict = entry.verify(Store(), RecordingReporter())
    assert verdict == Verdict(home / "m.gguf", is_known=False)


def test_a_model_is_fetched_verified_and_kept(
    home: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"the weights" * 5000
    know(monkeypatch, add_model(index, "tiny:1b", content))
    reporter = RecordingReporter()
    path = resolve("Tiny:1B", reporter=reporter)
    assert path == home / "models" / "tiny-1b" / "tiny model.gguf"
    assert path.read_bytes() == content
    assert reporter.totals == [reporter.num_bytes]
    assert [p.name for p in path.parent.iterdir()] == ["tiny model.gguf"]
    next(index.iterdir()).unlink()
    assert resolve("tiny:1b") == path


def test_a_wrong_checksum_leaves_nothing(
    home: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    know(monkeypatch, add_model(index, "tiny:1b", b"the weights", sha256="0" * 64))
    with pytest.raises(DownloadError, match=f"not {'0' * 64}; nothing was kept"):
        resolve("tiny:1b", reporter=NullReporter())
    assert list((home / "models").rglob("*.*")) == []


def test_terms_are_shown_accepted_and_remembered(
    home: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = add_model(index, "tiny:1b", b"one", terms=STRICT)
    second = add_model(index, "tiny:2b", b"two", terms=STRICT)
    know(monkeypatch, first, second)
    with pytest.raises(LicenseError) as caught:
        resolve("tiny:1b")
    assert "Strict Terms: https://example.org/strict" in str(caught.value)
    assert "\n  firstword pull tiny:1b --accept-license\n" in str(caught.value)
    assert "FIRSTWORD_ACCEPT_LICENSE=strict" in str(caught.value)
    assert not (home / "models").exists()

    reporter = RecordingReporter()
    resolve("tiny:1b", accept_license=True, reporter=reporter)
    shown = "tiny:1b: under the Strict Terms, accepted: https://example.org/strict"
    assert reporter.notes == [shown]
    assert resolve("tiny:2b", reporter=NullReporter()).read_bytes() == b"two"


@pytest.mark.parametrize(
    ("value", "accepted"), [("strict", True), ("other, STRICT", True), ("", False), ("x", False)]
)
def test_terms_are_accepted_by_the_environment(
    home: Path, index: Path, monkeypatch: pytest.MonkeyPatch, value: str, accepted: bool
) -> None:
    know(monkeypatch, add_model(index, "tiny:1b", b"one", terms=STRICT))
    monkeypatch.setenv("FIRSTWORD_ACCEPT_LICENSE", value)
    monkeypatch.setattr(CatalogueEntry, "fetch", lambda *arguments: Path("fetched"))
    if accepted:
        assert resolve("tiny:1b", reporter=NullReporter()) == Path("fetched")
    else:
        with pytest.raises(LicenseError):
            resolve("tiny:1b", reporter=NullReporter())


@pytest.mark.parametrize(
    ("reference", "suggestion"),
    [
        ("smolm2:135m", "did you mean smollm2:135m?"),
        ("qwen3", "did you mean qwen3:0.6b, qwen3:1.7b, qwen3:4b, qwen3:8b?"),
        ("GEMMA3:27m", "did you mean gemma3:270m"),
        ("zzz", "see firstword models"),
        ("", "see firstword models"),
    ],
)
def test_a_mistyped_name_gets_suggestions(reference: str, suggestion: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        parse_reference(reference)
    assert f"no model is called {reference!r}: {suggestion}" in str(caught.value)


def test_a_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "my models ü 語" / "a model.gguf"
    path.parent.mkdir()
    path.touch()
    assert resolve(str(path)) == path
    assert resolve(str(path.parent)) == path.parent
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/my models ü 語/a model.gguf") == path
    monkeypatch.chdir(path.parent)
    assert resolve("a model.gguf") == Path("a model.gguf")


def test_a_path_that_does_not_exist_is_named_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "model-q4.gguf").touch()
    wrong = str(tmp_path / "modle-q4.gguf")
    with pytest.raises(ModelNotFoundError) as caught:
        resolve(wrong)
    assert str(caught.value) == (
        f"there is no file or folder {wrong!r}; did you mean model-q4.gguf?"
    )


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("org/repo", "write hf:org/repo"),
        ("absent.gguf", "there is no file or folder 'absent.gguf' in /"),
        ("./absent", "there is no file or folder './absent'"),
        ("a\0b.gguf", "there is no file or folder"),
        ("x" * 5000 + ".gguf", "there is no file or folder"),
        ("/no/such/folder/x.gguf", "there is no file or folder '/no/such/folder/x.gguf'"),
    ],
)
def test_what_looks_like_a_path_is_told_as_one(reference: str, words: str) -> None:
    with pytest.raises(ModelNotFoundError, match=words):
        resolve(reference)


def test_hub_references_are_read_and_looked_up_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    target = parse_reference("hf:org/repo:a.gguf")
    assert target == HubSource("org/repo", "a.gguf")
    assert find(target) is None
    with pytest.raises(ModelNotFoundError, match=r"firstword pull hf:org/repo:a\.gguf$"):
        resolve("hf:org/repo:a.gguf", download=False)
    with pytest.raises(ModelNotFoundError, match=r"firstword pull llama3\.2:1b$"):
        resolve("llama3.2:1b", download=False)


def test_hub_models_of_the_catalogue_ask_for_their_terms_first(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    fetched: list[HubSource] = []

    def fetch_hub(source: HubSource) -> Path:
        fetched.append(source)
        return Path("fetched.gguf")

    monkeypatch.setattr(catalogue, "fetch_hub", fetch_hub)
    with pytest.raises(LicenseError, match=r"Llama 3\.2 Community License"):
        resolve("llama3.2:1b", reporter=NullReporter())
    assert fetched == []
    reporter = RecordingReporter()
    assert resolve("qwen3:4b", reporter=reporter) == Path("fetched.gguf")
    assert fetched == [HubSource("Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf")]
    assert reporter.notes == [
        "qwen3:4b: about 2.5 GB from hf:Qwen/Qwen3-4B-GGUF:Qwen3-4B-Q4_K_M.gguf"
    ]
