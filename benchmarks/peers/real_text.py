"""A long real text from files that most machines have: licences and Python's own sources."""

from __future__ import annotations

import sysconfig
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

LICENCES = Path("/usr/share/common-licenses")
"""Debian's; nothing is taken from there where the folder is missing."""


def pieces(licences: Path = LICENCES, sources: Path | None = None) -> Iterator[str]:
    """Licences and modules of the standard library in turn, each group in order of its names.

    Args:
        licences: a folder of texts.
        sources: a folder of modules; None for the running Python's.
    """
    modules = sources or Path(sysconfig.get_paths()["stdlib"])
    texts = [path for path in sorted(licences.glob("*")) if not path.is_symlink()]
    for pair in zip_longest(texts, sorted(modules.glob("*.py"))):
        for path in filter(None, pair):
            yield path.read_text(encoding="utf-8", errors="replace")


def write_tokens(
    path: Path,
    num_tokens: int,
    encode: Callable[[str], Sequence[int]],
    texts: Iterator[str] | None = None,
) -> None:
    """Write the first token ids of the text, 32 bits each.

    Args:
        path: where to.
        num_tokens: how many.
        encode: token ids of a text.
        texts: what to read; None for `pieces`.

    Raises:
        ValueError: there is not enough text.
    """
    tokens = array("i")
    for text in pieces() if texts is None else texts:
        tokens.extend(encode(text))
        if len(tokens) >= num_tokens:
            path.write_bytes(tokens[:num_tokens].tobytes())
            return
    raise ValueError(f"the text has {len(tokens)} tokens, but {num_tokens} are asked for")
