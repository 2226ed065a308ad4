"""Where the models of the rows come from: the catalogue, files, or shapes with random weights."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.make_model import MIXES, SHAPES, read_vocabulary, write_model
from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.random_blocks import SUPPORTED
from firstword.weights.catalogue import resolve
from firstword.weights.store import default_home

_SHAPES = {"1b": "llama-3.2-1b", "8b": "llama-3.1-8b"}
_VOCABULARY = Path("models") / "ggml-vocab-llama-bpe.gguf"


def find(name: str) -> Path:
    """The file of a model.

    Args:
        name: "1b:q4_0" and the like for a published shape in a type that `make_model` knows, which
            is made the first time; a catalogue name; or a path.

    Raises:
        ModelNotFoundError, DownloadError, LicenseError: the model cannot be had.
        ValueError: there is no such type.
    """
    shape, _, kind = name.partition(":")
    if shape not in _SHAPES:
        return resolve(name)
    known = [*MIXES, *(t.name for t in SUPPORTED)]
    if kind.upper() not in known:
        raise ValueError(f"{name!r} names no type: choose from {', '.join(known)}")
    folder = default_home() / "bench-models"
    path = folder / f"{_SHAPES[shape]}-{kind.upper()}.gguf"
    if not path.is_file():
        print(f"making {path.name}", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        published = LlamaCpp().source() / _VOCABULARY
        draft = path.with_suffix(".part")
        write_model(draft, SHAPES[_SHAPES[shape]], kind.upper(), read_vocabulary(published))
        draft.replace(path)
    return path
