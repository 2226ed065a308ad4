from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from firstword.errors import ConfigError, DownloadError
from firstword.weights.progress import NullReporter
from firstword.weights.store import Artifact, CheckedWriter, Fetch, Store, default_home
from tests.fake_index import RecordingReporter

CONTENT = bytes(range(256)) * 16
CHUNKS = [CONTENT[i : i + 1024] for i in range(0, len(CONTENT), 1024)]
ARTIFACT = Artifact("tiny:1b", "tiny.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())

# Another process: says that it has begun, writes half, then waits to be told to go on.
OTHER_PROCESS = """
import sys
from pathlib import Path
from firstword.weights.progress import NullReporter
from firstword.weights.store import Artifact, Store

artifact = Artifact("tiny:1b", "tiny.gguf", int(sys.argv[2]), sys.argv[3])
content = bytes(range(256)) * 16

def fetch(writer, scratch):
    writer.write(content[:2048])
    writer._file.flush()
    (scratch / "wheel").write_bytes(b"half")
    print("begun", flush=True)
    sys.stdin.readline()
    writer.write(content[2048:])

Store(Path(sys.argv[1])).land(artifact, fetch, NullReporter())
"""


def fetch_all(writer: CheckedWriter, scratch: Path) -> None:
    for chunk in CHUNKS:
        writer.write(chunk)


def fetch_nothing(writer: CheckedWriter, scratch: Path) -> None:
    raise AssertionError("fetched although it is there")


def files_below(store: Store) -> list[str]:
    return sorted(path.name for path in store.models.rglob("*") if path.is_file())


def start_other(store: Store) -> subprocess.Popen[str]:
    """A process that is in the middle of fetching, and holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS, store.home, str(ARTIFACT.size), ARTIFACT.sha256],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "a home with spaces and ü 語")


def test_a_file_lands_whole_and_is_found(store: Store) -> None:
    assert store.find(ARTIFACT) is None
    path = store.land(ARTIFACT, fetch_all, NullReporter())
    assert path == store.models / "tiny-1b" / "tiny.gguf" == store.find(ARTIFACT)
    assert path.read_bytes() == CONTENT
    assert files_below(store) == ["tiny.gguf"]
    assert store.land(ARTIFACT, fetch_nothing, NullReporter()) == path


def test_a_whole_file_has_no_damage_and_all_of_it_is_read(store: Store) -> None:
    store.land(ARTIFACT, fetch_all, NullReporter())
    progress = RecordingReporter()
    assert store.damage(ARTIFACT, progress) is None
    assert progress.num_bytes == len(CONTENT)


@pytest.mark.parametrize("index", [0, 2047, len(CONTENT) - 1])
def test_one_changed_bit_is_damage(store: Store, index: int) -> None:
    path = store.land(ARTIFACT, fetch_all, NullReporter())
    content = bytearray(CONTENT)
    content[index] ^= 1
    path.write_bytes(content)
    assert store.find(ARTIFACT) == path  # a look at its size does not show it
    found = store.damage(ARTIFACT, RecordingReporter())
    assert found == f"its sha256 is {hashlib.sha256(content).hexdigest()}, not {ARTIFACT.sha256}"


def test_a_file_of_another_length_is_damage_without_reading_it(store: Store) -> None:
    path = store.land(ARTIFACT, fetch_all, NullReporter())
    os.truncate(path, 100)
    progress = RecordingReporter()
    assert store.damage(ARTIFACT, progress) == f"it has 100 bytes, not {len(CONTENT)}"
    assert progress.num_bytes == 0


def test_a_file_that_cannot_be_read_is_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store.land(ARTIFACT, fetch_all, NullReporter())
    monkeypatch.setattr("builtins.open", refuse)
    found = store.damage(ARTIFACT, RecordingReporter())
    assert found is not None and "cannot be read" in found and os.strerror(errno.EIO) in found


def test_a_file_cut_short_later_is_not_found_and_is_fetched_again(store: Store) -> None:
    path = store.land(ARTIFACT, fetch_all, NullReporter())
    os.truncate(path, 100)
    assert store.find(ARTIFACT) is None
    store.land(ARTIFACT, fetch_all, NullReporter())
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        (CHUNKS[:-1], "3072 of 4096 bytes"),
        ([*CHUNKS, b"x"], "more than 4096 bytes"),
        ([*CHUNKS[:-1], bytes(1024)], "sha256"),
        ([], "0 of 4096 bytes"),
    ],
)
def test_wrong_bytes_leave_nothing(store: Store, chunks: list[bytes], words: str) -> None:
    def fetch(writer: CheckedWriter, scratch: Path) -> None:
        (scratch / "wheel").write_bytes(b"wheel")
        for chunk in chunks:
            writer.write(chunk)

    with pytest.raises(DownloadError, match=rf"tiny:1b: tiny\.gguf: .*{words}.*Pull again"):
        store.land(ARTIFACT, fetch, NullReporter())
    assert files_below(store) == []
    assert store.find(ARTIFACT) is None


@pytest.mark.parametrize("num_chunks", range(len(CHUNKS) + 1))
def test_an_interruption_at_any_chunk_leaves_nothing(store: Store, num_chunks: int) -> None:
    def fetch(writer: CheckedWriter, scratch: Path) -> None:
        for chunk in CHUNKS[:num_chunks]:
            writer.write(chunk)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.land(ARTIFACT, fetch, NullReporter())
    assert files_below(store) == []
    assert store.land(ARTIFACT, fetch_all, NullReporter()).read_bytes() == CONTENT


def test_a_killed_process_leaves_nothing_complete_and_the_next_cleans_up(store: Store) -> None:
    process = start_other(store)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert files_below(store) == ["file", "wheel"]
    assert store.find(ARTIFACT) is None
    assert store.land(ARTIFACT, fetch_all, NullReporter()).read_bytes() == CONTENT
    assert files_below(store) == ["tiny.gguf"]


def test_of_two_processes_one_fetches_and_the_other_waits(store: Store) -> None:
    process = start_other(store)
    assert process.stdin is not None
    stdin = process.stdin

    class LetTheOtherGoOn(RecordingReporter):
        def note(self, message: str) -> None:
            super().note(message)
            stdin.write("go on\n")
            stdin.flush()

    reporter = LetTheOtherGoOn()
    path = store.land(ARTIFACT, fetch_nothing, reporter)
    assert path.read_bytes() == CONTENT
    assert reporter.notes == ["tiny:1b: waiting for another firstword that is fetching it"]
    process.communicate()
    assert process.returncode == 0


def test_too_little_free_space_is_told_with_numbers_before_fetching(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1_000_000))
    artifact = Artifact("big:1b", "big.gguf", 50_000_000, "0" * 64)
    with pytest.raises(DownloadError, match=r"needs 70 MB .* has 1 MB free\. Free 69 MB"):
        store.land(artifact, fetch_nothing, NullReporter(), scratch_bytes=20_000_000)
    assert files_below(store) == []


def test_a_disk_that_gets_full_is_told_and_leaves_nothing(store: Store) -> None:
    def fetch(writer: CheckedWriter, scratch: Path) -> None:
        writer.write(CHUNKS[0])
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DownloadError, match=r"is full .*FIRSTWORD_HOME"):
        store.land(ARTIFACT, fetch, NullReporter())
    assert files_below(store) == []


@pytest.mark.parametrize("action", ["land", "accept"])
def test_a_home_that_cannot_be_written_is_told_with_the_remedy(tmp_path: Path, action: str) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "home")
    assert store.find(ARTIFACT) is None
    fetch: Fetch = fetch_nothing
    with pytest.raises(ConfigError, match=r"cannot write to .*file/home.*set FIRSTWORD_HOME"):
        if action == "land":
            store.land(ARTIFACT, fetch, NullReporter())
        else:
            store.accept_license("gemma", NullReporter())


def test_accepted_licenses_are_remembered(store: Store) -> None:
    assert store.accepted_licenses() == frozenset()
    store.accept_license("gemma", NullReporter())
    store.accept_license("llama3.2", NullReporter())
    record = (store.home / "accepted_licenses.json").read_text()
    store.accept_license("gemma", NullReporter())
    assert Store(store.home).accepted_licenses() == {"gemma", "llama3.2"}
    assert (store.home / "accepted_licenses.json").read_text() == record
    assert all(when.startswith("20") for when in json.loads(record).values())


@pytest.mark.parametrize("text", ["", "{", "[1]", "null"])
def test_a_damaged_license_record_counts_as_none(store: Store, text: str) -> None:
    store.home.mkdir()
    (store.home / "accepted_licenses.json").write_text(text)
    assert store.accepted_licenses() == frozenset()
    store.accept_license("gemma", NullReporter())
    assert store.accepted_licenses() == {"gemma"}


@pytest.mark.parametrize(
    ("environ", "home"),
    [
        ({"FIRSTWORD_HOME": "/x y", "XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/x y"),
        ({"FIRSTWORD_HOME": "", "XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/firstword"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/firstword"),
        ({"HOME": "/h"}, "/h/.cache/firstword"),
    ],
)
def test_the_home_folder(environ: dict[str, str], home: str) -> None:
    assert default_home(environ) == Path(home)


def test_a_relative_home_becomes_absolute() -> None:
    assert default_home({"FIRSTWORD_HOME": "here"}) == Path.cwd() / "here"


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "here", "FIRSTWORD_HOME": ""}])
def test_no_home_at_all_is_told_with_the_remedy(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"HOME is '.*set FIRSTWORD_HOME"):
        default_home(environ)
