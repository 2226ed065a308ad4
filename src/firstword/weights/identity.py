"""What tells one state of a large file from another without reading it whole.

Not here: what tells one model from another wherever its file lies (GGUFFile.fingerprint).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256

PAGE_BYTES = 4096
NUM_SAMPLED_PAGES = 64


def sample_pages(data: memoryview) -> Iterator[memoryview]:
    """At most 64 pages of `data`, evenly spaced, the first and the last among them."""
    num_pages = -(-len(data) // PAGE_BYTES)
    count = min(NUM_SAMPLED_PAGES, num_pages)
    for i in range(count):
        start = (num_pages - 1) * i // max(count - 1, 1) * PAGE_BYTES
        yield data[start : start + PAGE_BYTES]


def sample_digest(data: memoryview) -> bytes:
    """sha256 of the sampled pages."""
    digest = sha256()
    for page in sample_pages(data):
        digest.update(page)
    return digest.digest()


def file_identity(data: memoryview, status: os.stat_result, header_bytes: int) -> bytes:
    """32 bytes that change when the file is written to or replaced.

    Args:
        data: the whole file.
        status: of the file, from the time it was opened.
        header_bytes: how much of its beginning is read whole.
    """
    digest = sha256(f"{len(data)} {status.st_mtime_ns} {status.st_ino}".encode())
    digest.update(sha256(data[:header_bytes]).digest())
    digest.update(sample_digest(data))
    return digest.digest()
