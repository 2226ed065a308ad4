"""The compiled twin of the slowest loop of reading a header: stepping over strings.

Not here: the checks' messages, which the loop in `gguf_values` gives.
"""

from __future__ import annotations

import firstword._native as _native


def end_of_strings(data: memoryview, start: int, count: int) -> int | None:
    """Where strings end that follow each other, each after its length in 8 bytes.

    Args:
        data: the file.
        start: offset of the first length.
        count: how many there are.

    Returns:
        None if one of them does not lie within the file.
    """
    return _native.end_of_strings(data, start, count)
