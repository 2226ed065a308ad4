"""The spelling of byte-level vocabularies (GPT-2): one printable character for each byte.

Not here: how bytes are merged (pipelines, compiled).
"""

from __future__ import annotations

from firstword.text.vocabulary import TokenType, Vocabulary


def _alphabet() -> dict[str, int]:
    """Printable bytes stand for themselves, the others are written with the characters from
    U+0100 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(rest)}


ALPHABET = _alphabet()
"""Character -> byte."""


def spelled_bytes(token: str) -> bytes | None:
    """The bytes that a token spells; None if it has a character outside the alphabet."""
    if all(character in ALPHABET for character in token):
        return bytes(ALPHABET[character] for character in token)
    return None


def unwritable_bytes(vocab: Vocabulary) -> bytes:
    """Bytes that no token writes; text that needs them cannot be encoded."""
    single = {token for token in vocab.ids_of(TokenType.NORMAL) if len(token) == 1}
    return bytes(sorted(byte for character, byte in ALPHABET.items() if character not in single))
