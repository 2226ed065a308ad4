"""The bytes of a kept block: its pages, and the entry that names and verifies them.

Not here: files (segment), and which entries there are (entry_index).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_KEY_BYTES = 16
_DIGEST_BYTES = 8
_CHECK_BYTES = 4


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A full block as it goes to the disk.

    Args:
        key: its name, 16 bytes (block_pool.block_key).
        parent: name of the block before it, 16 bytes.
        token_ids: its tokens, each in 0 .. 2**32 - 1.
        pages: the content of its pages, one per KV group.
    """

    key: bytes
    parent: bytes
    token_ids: tuple[int, ...]
    pages: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class StoreIdentity:
    """Whose blocks are of use to whom: the same model, the same settings.

    Args:
        digest: 16 bytes that differ wherever keys and values may differ, or their layout.
        name: of the model, for people.
        settings: what else counts, for people: "float16, native".
        page_bytes: bytes of a block's page in each KV group.
        block_size: tokens in one block.
    """

    digest: bytes
    name: str
    settings: str
    page_bytes: tuple[int, ...]
    block_size: int

    @property
    def fingerprint(self) -> str:
        """The digest in hexadecimal: it names the folder, and the roots of the blocks in it."""
        return self.digest.hex()


@dataclass(frozen=True)
class RecordLayout:
    """Sizes of an entry and of the pages that belong to it; both are the same for all blocks.

    An entry is

        | key 16 | parent 16 | token ids 4 each | digest 8 per page | crc32 of all before, 4 |

    in little-endian order. Its pages lie one after the other, without anything between them.

    Args:
        page_bytes: bytes of a block's page in each KV group.
        block_size: tokens in one block.
    """

    page_bytes: tuple[int, ...]
    block_size: int

    @property
    def record_bytes(self) -> int:
        """Bytes of all pages of a block."""
        return sum(self.page_bytes)

    @property
    def tokens_end(self) -> int:
        """Where the digests begin in an entry."""
        return 2 * _KEY_BYTES + 4 * self.block_size

    @cached_property
    def entry_bytes(self) -> int:
        """Bytes of an entry."""
        return self.tokens_end + _DIGEST_BYTES * len(self.page_bytes) + _CHECK_BYTES

    @cached_property
    def _checked(self) -> struct.Struct:
        return struct.Struct(f"<{self.entry_bytes - _CHECK_BYTES}sI")

    def fits(self, block: StoredBlock) -> bool:
        """Whether a block is of this layout."""
        return (
            tuple(map(len, block.pages)) == self.page_bytes
            and len(block.token_ids) == self.block_size
            and len(block.key) == len(block.parent) == _KEY_BYTES
        )

    def pack(self, block: StoredBlock) -> bytes:
        """The entry of a block."""
        body = b"".join(
            (block.key, block.parent, pack_tokens(block.token_ids), *map(page_digest, block.pages))
        )
        return self._checked.pack(body, zlib.crc32(body))

    def keys(self, entries: bytes | bytearray) -> Iterator[tuple[bytes, bytes] | None]:
        """Key and parent of each entry, None for one that is damaged.

        Args:
            entries: whole entries, one after the other.
        """
        for body, check in self._checked.iter_unpack(entries):
            if zlib.crc32(body) == check:
                yield body[:_KEY_BYTES], body[_KEY_BYTES : 2 * _KEY_BYTES]
            else:
                yield None

    def tokens(self, entries: bytes | bytearray, position: int) -> bytes:
        """The packed token ids of entry `position`."""
        start = position * self.entry_bytes
        return bytes(entries[start + 2 * _KEY_BYTES : start + self.tokens_end])

    def digests(self, entries: bytes | bytearray, position: int) -> tuple[bytes, ...]:
        """The digests of the pages of entry `position`."""
        first = position * self.entry_bytes + self.tokens_end
        starts = (first + _DIGEST_BYTES * i for i in range(len(self.page_bytes)))
        return tuple(bytes(entries[start : start + _DIGEST_BYTES]) for start in starts)

    def page_start(self, position: int, group: int) -> int:
        """Where a page lies among the pages of all entries."""
        return position * self.record_bytes + sum(self.page_bytes[:group])


def pack_tokens(token_ids: tuple[int, ...]) -> bytes:
    """Token ids as they stand in an entry."""
    return struct.pack(f"<{len(token_ids)}I", *token_ids)


def unpack_tokens(packed: bytes) -> tuple[int, ...]:
    """Token ids of an entry."""
    return struct.unpack(f"<{len(packed) // 4}I", packed)


def page_digest(page: bytes) -> bytes:
    """64 bits that tell a damaged page: CRC-32 (every burst of up to 32 bits) and Adler-32.

    Together they run at 2 GB/s where blake2b reaches 0.95; nobody is to be kept from forging a
    page who could as well write to the folder.
    """
    return struct.pack("<II", zlib.crc32(page), zlib.adler32(page))
