"""Writes csrc/text/unicode_classes.inl.h: the letters, numbers and spaces of pre-tokenization.

They are asked of the `tokenizers` library, whose regular expressions are the definition; the
tables of Python's `unicodedata` are of another Unicode version.

    .venv/bin/python scripts/make_unicode_classes.py
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, pre_tokenizers

TARGET = Path(__file__).parent.parent / "csrc" / "text" / "unicode_classes.inl.h"
PATTERNS = {"kLetter": r"\p{L}+", "kNumber": r"\p{N}+", "kSpace": r"\s+"}
SURROGATES = (0xD800, 0xDFFF)
HEAD = """\
// Made by scripts/make_unicode_classes.py from the regular expressions of `tokenizers`: ranges of
// code points, first and last included, in order. What is in none is of class kOther.
"""


def class_ranges() -> list[tuple[int, int, str]]:
    """All ranges (first, last, class), in order."""
    first, last = SURROGATES
    text = "".join(chr(code) for code in range(0x110000) if not first <= code <= last)
    found = []
    for name, pattern in PATTERNS.items():
        cut = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        found += [(ord(run[0]), ord(run[-1]), name) for run, _ in cut.pre_tokenize_str(text)]
    return sorted(found)


def main() -> None:
    lines = [f"{{0x{first:04X}, 0x{last:04X}, {name}}}," for first, last, name in class_ranges()]
    TARGET.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
