"""What tells the code that computes from another version of it, whose numbers may differ.

Not here: what tells one model from another (weights).
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_FOLDERS = ("layers", "models", "ops", "quant")


def build_digest() -> str:
    """64 hexadecimal digits that change with any line of a network, a layer or a backend.

    Read from the files, in 1 to 2 ms: nobody has to remember to count a version up.
    """
    digest = sha256()
    for path in _files():
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    for folder in _FOLDERS:
        yield from sorted((_PACKAGE / folder).glob("*.py"))
    compiled = find_spec("firstword._native")
    if compiled is not None and compiled.origin is not None:
        yield Path(compiled.origin)
