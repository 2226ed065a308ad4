from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstword.errors import DownloadError, ModelNotFoundError
from firstword.weights.hub import (
    HubSource,
    choose_files,
    fetch_hub,
    find_cached,
    parse_hub_reference,
    split_parts,
)
from tests.fake_hub import COMMIT, FakeHub, serve

# huggingface_hub reads its settings at import: each test of the wire runs in a process of its own.
PROGRAM = """
import sys, time
from firstword.errors import FirstwordError
from firstword.weights.catalogue import resolve
time.sleep = lambda seconds: None  # huggingface_hub retries after a pause
try:
    print(resolve(sys.argv[1], download=sys.argv[2:] != ["offline"]))
except FirstwordError as error:
    print(f"{type(error).__name__}: {error}")
"""
SPLIT = [f"big-Q8_0-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
ONE_PER_TYPE = ["m.BF16.gguf", "m.Q2_K.gguf", "m.Q8_0.gguf", "m.Q4_K_M.gguf", "m.IQ4_NL.gguf"]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    repos = {
        "org/one": {"README.md": b"read me", "tiny.gguf": b"tiny" * 1000},
        "org/many": {name: name.encode() for name in ONE_PER_TYPE},
        "org/split": {name: name.encode() for name in SPLIT},
        "org/none": {"model.safetensors": b"x"},
    }
    with serve(FakeHub(repos, gated={"org/gated"})) as running:
        yield running


def run(hub: FakeHub, home: Path, *arguments: str, **environ: str) -> str:
    """What the program prints; its own settings are the only ones it sees."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    mine = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home / "hf ü"), "FIRSTWORD_HOME": str(home)}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**kept, **mine, "no_proxy": "127.0.0.1", **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_the_one_file_is_fetched_once_then_found_without_the_hub(
    hub: FakeHub, tmp_path: Path
) -> None:
    path = Path(run(hub, tmp_path, "hf:org/one"))
    assert path.read_bytes() == b"tiny" * 1000
    assert path.is_relative_to(tmp_path / "hf ü")
    seen = len(hub.requests)
    assert run(hub, tmp_path, "hf:org/one", "offline") == str(path)
    assert run(hub, tmp_path, "hf:org/one:tiny.gguf") == str(path)
    assert len(hub.requests) == seen
    assert hub.num_downloads("tiny.gguf") == 1


def test_all_parts_of_a_split_file_are_fetched_and_the_first_is_named(
    hub: FakeHub, tmp_path: Path
) -> None:
    path = Path(run(hub, tmp_path, f"hf:org/split:{SPLIT[1]}"))
    assert path.name == SPLIT[0]
    assert [(path.parent / name).read_text() for name in SPLIT] == SPLIT


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("hf:org/gated:tiny.gguf", ("DownloadError", "gated", "/org/gated", "HF_TOKEN")),
        ("hf:org/absent", ("ModelNotFoundError", "no repository", "/org/absent", "HF_TOKEN")),
        ("hf:org/one:absent.gguf", ("ModelNotFoundError", "no such file", "/org/one/tree/main")),
        ("hf:org/none", ("ModelNotFoundError", "nor any other .gguf file")),
    ],
)
def test_refusals_say_what_to_do(
    hub: FakeHub, tmp_path: Path, reference: str, words: tuple[str, ...]
) -> None:
    output = run(hub, tmp_path, reference)
    assert all(word in output for word in (*words, reference))


def test_a_transfer_that_breaks_off_leaves_nothing_and_can_be_repeated(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.cut.add("tiny.gguf")
    output = run(hub, tmp_path, "hf:org/one:tiny.gguf")
    assert output.startswith("DownloadError: hf:org/one:tiny.gguf: cannot fetch from http")
    assert list(tmp_path.rglob("*.gguf")) == []
    hub.cut.clear()
    assert Path(run(hub, tmp_path, "hf:org/one:tiny.gguf")).read_bytes() == b"tiny" * 1000


def test_offline_is_told_not_tried(hub: FakeHub, tmp_path: Path) -> None:
    output = run(hub, tmp_path, "hf:org/one", HF_HUB_OFFLINE="1")
    assert output.startswith("DownloadError: hf:org/one")
    assert "HF_HUB_OFFLINE" in output
    output = run(hub, tmp_path, "hf:org/one", "offline")
    assert output.endswith("firstword pull hf:org/one")
    assert hub.requests == []


def test_a_hub_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    def refuse(self: HfApi, repo: str) -> list[str]:
        raise ConnectionError("connection refused")

    monkeypatch.setattr(HfApi, "list_repo_files", refuse)
    with pytest.raises(DownloadError, match=r"connection refused\. Check the network, HTTPS_PROXY"):
        fetch_hub(HubSource("org/one"))


@pytest.mark.parametrize(
    ("reference", "repo", "file"),
    [
        ("hf:org/re.po-1", "org/re.po-1", None),
        ("hf:org/repo:sub folder/ü.gguf", "org/repo", "sub folder/ü.gguf"),
        ("hf:org/repo:Q8_0", "org/repo", "Q8_0"),
    ],
)
def test_references_are_read(reference: str, repo: str, file: str | None) -> None:
    source = parse_hub_reference(reference)
    assert source == HubSource(repo, file)
    assert str(source) == reference


@pytest.mark.parametrize("reference", ["hf:", "hf:repo", "hf:a/b/c", "hf:a/b:", "hf:a/b:c:d"])
def test_other_forms_are_refused(reference: str) -> None:
    with pytest.raises(ModelNotFoundError, match=r"write hf:ORG/REPO or hf:ORG/REPO:FILE\.gguf"):
        parse_hub_reference(reference)


@pytest.mark.parametrize(
    ("files", "wanted", "chosen"),
    [
        (["x.gguf", "README.md"], None, ["x.gguf"]),
        (["x.gguf", "mmproj-x.gguf", "x-imatrix-1.gguf"], None, ["x.gguf"]),
        (ONE_PER_TYPE, None, ["m.Q4_K_M.gguf"]),
        (ONE_PER_TYPE[:3], None, ["m.Q8_0.gguf"]),
        (ONE_PER_TYPE, "q2_k", ["m.Q2_K.gguf"]),
        (ONE_PER_TYPE, "m.BF16.gguf", ["m.BF16.gguf"]),
        (["a-Q4_0.gguf", "a-Q4_0_4_4.gguf"], None, ["a-Q4_0.gguf"]),
        (["a-Q4_K_M.gguf", "b-UD-Q4_K_XL.gguf"], "Q4_K_M", ["a-Q4_K_M.gguf"]),
        (["Q8_0/" + name for name in SPLIT], None, ["Q8_0/" + name for name in SPLIT]),
        ([*SPLIT, "big-Q2_K.gguf"], None, SPLIT),
    ],
)
def test_the_choice_of_files(files: list[str], wanted: str | None, chosen: list[str]) -> None:
    assert choose_files(files, HubSource("o/r", wanted)) == chosen


@pytest.mark.parametrize(
    ("files", "wanted", "words"),
    [
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], None, "several that fit"),
        (["a.gguf", "b.gguf"], None, "several that fit"),
        (["a.gguf", "b.gguf"], "Q4_0", "no such model file"),
        (["a.gguf", "b.gguf"], "c.gguf", "no such model file"),
    ],
)
def test_when_it_stays_open_which_the_files_are_listed(
    files: list[str], wanted: str | None, words: str
) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        choose_files(files, HubSource("o/r", wanted))
    assert words in str(caught.value)
    assert all(f"\n  hf:o/r:{file}" in str(caught.value) for file in files)


def test_parts_follow_from_the_name_of_any() -> None:
    assert split_parts("d/" + SPLIT[2]) == [f"d/{name}" for name in SPLIT]
    assert split_parts("m.gguf") == ["m.gguf"]


def test_a_split_file_counts_as_cached_only_when_all_parts_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    source = HubSource("org/split")
    assert find_cached(source) is None
    repo = tmp_path / "models--org--split"
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)
    for name in SPLIT:
        assert find_cached(source) is None
        (snapshot / name).write_bytes(b"part")
    assert find_cached(source) == snapshot / SPLIT[0]
