"""Harm to files, and their size; not which files, and when."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, bit: int) -> None:
    """Flip one bit of a file, counted from 0."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def filled_files(folder: Path) -> list[Path]:
    """All files below a folder that are not empty, in order."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]


def folder_bytes(folder: Path) -> int:
    """What all files below a folder hold."""
    return sum(path.stat().st_size for path in filled_files(folder))
