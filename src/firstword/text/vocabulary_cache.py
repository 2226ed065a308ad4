"""The folder of compiled vocabularies, and the tokenizer that a model file gets from it.

Nothing here is needed to run: whatever goes wrong costs the next start the time to compile again.
Not here: what is in a file and when it is trusted (vocabulary_file).
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from firstword.errors import ConfigError
from firstword.text.compiled import CompiledVocabulary, compile_vocabulary
from firstword.text.tokenizer import Tokenizer
from firstword.text.vocabulary import Vocabulary
from firstword.text.vocabulary_file import file_key, pack, unpack
from firstword.weights.panel_cache import FREE_SHARE, Usage, stem
from firstword.weights.store import default_home

MAX_FILES = 64
"""The least recently used give way; a file of 262,144 tokens takes 8 MB."""
MIN_TOKENS = 10_000
"""Smaller vocabularies are compiled about as fast as a file is found."""

_SUFFIX = ".vocabulary"
_PARTIAL = ".partial-"


class ModelFile(Protocol):
    """What is asked of a checkpoint."""

    @property
    def path(self) -> Path:
        """The file; the first part of a split one."""

    @property
    def identity(self) -> bytes:
        """What tells this state of the file from any other."""

    @property
    def tokenizer_metadata(self) -> Mapping[str, object]:
        """The `tokenizer.` keys."""


def open_tokenizer(model: ModelFile, *, keep: bool = True) -> Tokenizer:
    """The tokenizer of a model file, from its compiled vocabulary where there is one.

    Args:
        model: the file.
        keep: look for the compiled vocabulary, and leave it for the next start.

    Raises:
        CheckpointError: the vocabulary is malformed; names file, key and problem.
        UnsupportedModelError: a kind of tokenizer that is not built.
    """
    source = str(model.path)
    cache = _cache() if keep else None
    compiled = cache.load(model.path, model.identity) if cache else None
    if compiled is not None:
        return Tokenizer(compiled.vocab, compiled.tables)
    vocab = Vocabulary.from_gguf(model.tokenizer_metadata, source)
    compiled = compile_vocabulary(vocab)
    if compiled is None:
        return Tokenizer(vocab)
    if cache and len(vocab.tokens) >= MIN_TOKENS:
        cache.save(model.path, model.identity, compiled)
    return Tokenizer(compiled.vocab, compiled.tables)


class VocabularyCache:
    """The compiled vocabularies below one home folder.

    Args:
        home: the folder; it need not exist yet. None: `default_home()`.

    Raises:
        ConfigError: there is no default home.
    """

    def __init__(self, home: Path | None = None) -> None:
        self.folder = (default_home() if home is None else home) / "vocabularies"

    def usage(self) -> Usage:
        """Count the files."""
        sizes = [path.stat().st_size for path in self._files()]
        return Usage(len(sizes), sum(sizes))

    def clear(self) -> Usage:
        """Remove all files.

        Returns:
            What was removed.

        Raises:
            OSError: a file cannot be removed.
        """
        usage = self.usage()
        for path in self._files():
            path.unlink(missing_ok=True)
        return usage

    def load(self, model: Path, identity: bytes) -> CompiledVocabulary | None:
        """The compiled vocabulary of a model file; None if there is none that can be trusted.

        Args:
            model: the model file.
            identity: of its present state.
        """
        key = file_key(identity)
        path = self._path(model, key)
        try:
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            compiled = unpack(memoryview(data), key, str(model))
            if compiled is None:
                path.unlink(missing_ok=True)
            else:
                os.utime(path)  # used last now
        except (OSError, ValueError):  # ValueError: an empty file cannot be mapped
            return None
        return compiled

    def save(self, model: Path, identity: bytes, compiled: CompiledVocabulary) -> None:
        """Keep a compiled vocabulary, if the folder and its disk have room; never an error."""
        key = file_key(identity)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(model)
            content = pack(compiled, key)
            disk = shutil.disk_usage(self.folder)
            if disk.free - len(content) < FREE_SHARE * disk.total:
                return
            self._write(self._path(model, key), content)
        except OSError:
            return

    def _write(self, target: Path, content: bytes) -> None:
        """No fsync: what a power cut leaves undone, the digest shows."""
        fd, name = tempfile.mkstemp(prefix=_PARTIAL, dir=self.folder)
        try:
            with open(fd, "wb") as file:
                file.write(content)
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _make_room(self, model: Path) -> None:
        """Remove older states of this model, and what is oldest."""
        files = sorted(self._files(), key=lambda path: path.stat().st_mtime)
        stale = [path for path in files if path.name.startswith(stem(model))]
        others = [path for path in files if path not in stale]
        for path in [*stale, *others[: max(len(others) + 1 - MAX_FILES, 0)]]:
            path.unlink(missing_ok=True)

    def _path(self, model: Path, key: bytes) -> Path:
        return self.folder / f"{stem(model)}-{key.hex()[:32]}{_SUFFIX}"

    def _files(self) -> list[Path]:
        return list(self.folder.glob(f"*{_SUFFIX}"))


def _cache() -> VocabularyCache | None:
    try:
        return VocabularyCache()
    except ConfigError:  # the panel cache has said so already
        return None
