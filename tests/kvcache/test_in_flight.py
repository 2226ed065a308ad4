from __future__ import annotations

from firstword.kvcache.in_flight import InFlightBlocks
from tests.fakes import FakeSequence

KEYS = [bytes([i]) for i in range(6)]


def test_blocks_are_in_flight_until_they_are_filled() -> None:
    blocks, author = InFlightBlocks(), FakeSequence([])
    blocks.announce(author, KEYS[:3])
    assert [blocks.author(key) for key in KEYS[:4]] == [author, author, author, None]
    blocks.filled(author, 2)
    assert [blocks.author(key) for key in KEYS[:3]] == [None, None, author]
    blocks.filled(author, 1)
    blocks.filled(author, 1)  # of its own output, which was not announced
    assert len(blocks) == 0


def test_the_first_who_announces_a_block_is_its_author() -> None:
    blocks, first, second = InFlightBlocks(), FakeSequence([]), FakeSequence([])
    blocks.announce(first, KEYS[:2])
    blocks.announce(second, KEYS[:4])
    blocks.withdraw(second)
    assert [blocks.author(key) for key in KEYS[:4]] == [first, first, None, None]
    blocks.withdraw(first)
    blocks.withdraw(first)
    assert len(blocks) == 0


def test_a_chain_ends_at_the_first_block_that_nobody_computes() -> None:
    blocks, author = InFlightBlocks(), FakeSequence([])
    blocks.announce(author, [KEYS[0], KEYS[1], KEYS[3]])
    assert blocks.last_of_chain(KEYS) == KEYS[1]
    assert blocks.last_of_chain(KEYS[2:]) is None
    assert blocks.last_of_chain([]) is None
