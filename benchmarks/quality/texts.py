"""Real text of several kinds, cut into windows of tokens.

Licences as Debian ships them, the Python standard library's source, and this repository's own
pages: all there on the machine. Not here: what is measured on them.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from firstword.text.tokenizer import Tokenizer

WINDOW = 1024
REPOSITORY = Path(__file__).parents[2]
LICENCES = Path("/usr/share/common-licenses")
_GOLDEN_RATIO = (5**0.5 - 1) / 2  # its multiples, less their whole part, are spread evenly


class NoTextError(Exception):
    """A kind of text is not on this machine."""


def sources() -> dict[str, list[Path]]:
    """Files of each kind, in a fixed order.

    Raises:
        NoTextError: a kind has no files.
    """
    library = Path(sysconfig.get_path("stdlib"))
    pages = (REPOSITORY.glob(f"{folder}*.md") for folder in ("", "docs/", "benchmarks/"))
    found = {
        "licences": [p for p in LICENCES.glob("*") if p.is_file() and not p.is_symlink()],
        "standard library": list(library.glob("*.py")),
        "own pages": list(chain.from_iterable(pages)),
    }
    for kind, files in found.items():
        if not files:
            raise NoTextError(
                f"no text of the kind {kind!r}: licences lie in {LICENCES} (Debian: apt install "
                f"base-files), the standard library in {library}"
            )
    return {kind: sorted(files) for kind, files in found.items()}


def windows(tokenizer: Tokenizer, count: int, size: int = WINDOW) -> list[list[int]]:
    """Windows of mixed text, each beginning as a prompt of its own does.

    The kinds take turns. A window begins with a file and runs on into those after it; the windows
    of one kind begin at files spread over all of them.

    Args:
        tokenizer: of the model.
        count: how many windows; the first ones are the same for any.
        size: tokens in each, what the model wants before a prompt included.

    Raises:
        NoTextError: a kind has no files, or too little text.
    """
    kinds = list(sources().values())
    result = []
    for index in range(count):
        files = kinds[index % len(kinds)]
        first = int(index // len(kinds) * _GOLDEN_RATIO * len(files)) % len(files)
        result.append(_window(tokenizer, [*files[first:], *files[:first]], size))
    return result


def scored(window: Sequence[int]) -> Sequence[int]:
    """The tokens that are predicted: all but the first."""
    return window[1:]


def _window(tokenizer: Tokenizer, files: Sequence[Path], size: int) -> list[int]:
    ids = list(tokenizer.bos_ids)
    for text in _texts(files):
        ids += tokenizer.encode(text)
        if len(ids) >= size:
            return ids[:size]
    raise NoTextError(f"the text has {len(ids)} tokens: a window of {size} is too long")


def _texts(files: Sequence[Path]) -> Iterator[str]:
    for path in files:
        yield path.read_text(encoding="utf-8", errors="replace")
