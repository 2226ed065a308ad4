from __future__ import annotations

import os
from pathlib import Path

import pytest

from firstword.weights.identity import PAGE_BYTES, file_identity, sample_digest, sample_pages


@pytest.mark.parametrize("size", [0, 1, PAGE_BYTES, PAGE_BYTES + 1, 64 * PAGE_BYTES, 999_999])
def test_samples_are_few_and_hold_both_ends(size: int) -> None:
    data = os.urandom(size)
    pages = list(sample_pages(memoryview(data)))
    assert len(pages) == min(64, -(-size // PAGE_BYTES))
    if size:
        assert pages[0] == data[:PAGE_BYTES]
        assert bytes(pages[-1]) == data[(size - 1) // PAGE_BYTES * PAGE_BYTES :]
    if size <= 64 * PAGE_BYTES:
        assert b"".join(pages) == data


def test_samples_are_spread_over_the_whole() -> None:
    pages = [bytes([i]) * PAGE_BYTES for i in range(190)]
    seen = [page[0] for page in sample_pages(memoryview(b"".join(pages)))]
    assert seen == [3 * i for i in range(64)]
    changed = pages.copy()
    changed[3] = b"x" * PAGE_BYTES
    one, other = (sample_digest(memoryview(b"".join(p))) for p in (pages, changed))
    assert one != other


def test_an_identity_changes_with_every_property_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    data = bytearray(os.urandom(100 * PAGE_BYTES))

    def identity(header_bytes: int = 5 * PAGE_BYTES) -> bytes:
        return file_identity(memoryview(data), path.stat(), header_bytes)

    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    seen = [identity()]
    assert identity() == seen[0]
    os.utime(path, ns=(1, 2))
    seen.append(identity())
    data[2 * PAGE_BYTES + 7] ^= 1  # in the header, in no sampled page
    seen.append(identity())
    data[-1] ^= 1  # a sampled page
    seen.append(identity())
    copy = tmp_path / "copy"
    copy.write_bytes(data)
    os.utime(copy, ns=(1, 2))
    copy.replace(path)  # another inode
    seen.append(identity())
    data += b"\0"
    seen.append(identity())
    assert len(set(seen)) == len(seen)
