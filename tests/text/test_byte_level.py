from __future__ import annotations

from firstword.text.byte_level import ALPHABET, spelled_bytes, unwritable_bytes
from firstword.text.vocabulary import Vocabulary
from tests.text.vocabularies import BYTE_LETTERS, byte_level, spell


def test_the_alphabet_has_a_letter_for_each_byte() -> None:
    assert {byte: letter for letter, byte in ALPHABET.items()} == BYTE_LETTERS


def test_spelled_bytes_undo_the_spelling() -> None:
    assert spelled_bytes(spell("é \n字")) == "é \n字".encode()
    assert spelled_bytes("字") is None


def test_bytes_without_a_token_are_unwritable() -> None:
    metadata = byte_level()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens[tokens.index(spell("\x04"))] = "xx"
    assert unwritable_bytes(Vocabulary.from_gguf(metadata, "x")) == b"\x04"
