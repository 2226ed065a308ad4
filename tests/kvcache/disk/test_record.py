"""Entries say what was packed, and every damaged bit shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.kvcache.disk.record import pack_tokens, page_digest, unpack_tokens
from tests.kvcache.disk.blocks import LAYOUT, PAGE_BYTES, blocks

PAGES = st.binary(min_size=1, max_size=300)


def test_an_entry_gives_back_what_was_packed() -> None:
    first, second = blocks(2)
    entries = LAYOUT.pack(first) + LAYOUT.pack(second)
    assert len(entries) == 2 * LAYOUT.entry_bytes
    assert list(LAYOUT.keys(entries)) == [(first.key, first.parent), (second.key, first.key)]
    assert unpack_tokens(LAYOUT.tokens(entries, 1)) == second.token_ids
    assert LAYOUT.digests(entries, 1) == tuple(map(page_digest, second.pages))


def test_every_flipped_bit_of_an_entry_shows() -> None:
    entry = LAYOUT.pack(blocks(1)[0])
    for bit in range(8 * len(entry)):
        damaged = bytearray(entry)
        damaged[bit // 8] ^= 1 << bit % 8
        assert list(LAYOUT.keys(damaged)) == [None]


def test_an_entry_of_nothing_is_damaged() -> None:
    assert list(LAYOUT.keys(bytes(LAYOUT.entry_bytes))) == [None]


def test_pages_lie_one_after_the_other() -> None:
    assert LAYOUT.record_bytes == sum(PAGE_BYTES)
    assert LAYOUT.page_start(0, 1) == PAGE_BYTES[0]
    assert LAYOUT.page_start(3, 0) == 3 * LAYOUT.record_bytes


def test_only_whole_blocks_of_the_layout_fit() -> None:
    block = blocks(1)[0]
    assert LAYOUT.fits(block)
    assert not LAYOUT.fits(replace(block, pages=block.pages[:1]))
    assert not LAYOUT.fits(replace(block, token_ids=block.token_ids[1:]))
    assert not LAYOUT.fits(replace(block, parent=b""))


@given(PAGES, st.data())
def test_a_digest_tells_a_flipped_bit(page: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(page) - 1))
    damaged = bytearray(page)
    damaged[bit // 8] ^= 1 << bit % 8
    assert page_digest(bytes(damaged)) != page_digest(page)


@given(PAGES, st.data())
def test_a_digest_tells_a_cut_and_a_hole(page: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(page) - 1))
    assert page_digest(page[:end]) != page_digest(page)
    hollow = page[:end] + bytes(len(page) - end)
    assert hollow == page or page_digest(hollow) != page_digest(page)


@pytest.mark.parametrize("token_ids", [(), (0, 2**32 - 1)])
def test_token_ids_have_32_bits(token_ids: tuple[int, ...]) -> None:
    assert unpack_tokens(pack_tokens(token_ids)) == token_ids
