from __future__ import annotations

import pytest

from firstword.errors import CheckpointError
from firstword.text.compiled import PackedStrings, compile_vocabulary
from firstword.text.vocabulary import Vocabulary
from tests.text.vocabularies import BYTE, byte_level, sentencepiece, spell


def is_compiled(metadata: dict[str, object]) -> bool:
    return compile_vocabulary(Vocabulary.from_gguf(metadata, "test.gguf")) is not None


def test_packed_strings_are_a_sequence() -> None:
    strings = ["a", "", "字", "👧"]
    packed = PackedStrings.of(s.encode() for s in strings)
    assert list(packed) == strings
    assert packed[1:3] == ["", "字"]
    for index in (-1, 4):
        with pytest.raises(IndexError):
            packed[index]


def test_tokens_and_special_ids_survive() -> None:
    vocab = Vocabulary.from_gguf(sentencepiece(), "test.gguf")
    compiled = compile_vocabulary(vocab)
    assert compiled is not None
    assert list(compiled.vocab.tokens) == vocab.tokens
    assert compiled.vocab.special_ids == vocab.special_ids
    assert (compiled.vocab.types, compiled.vocab.scores) == (vocab.types, [])


def test_patterns_without_compiled_code_stay_with_the_library() -> None:
    assert is_compiled(byte_level(pre="qwen2"))
    for pre in ("gpt-4o", "tekken", "deepseek-v3", "falcon", "default", "unheard-of"):
        assert not is_compiled(byte_level(pre=pre))


def test_a_vocabulary_without_all_byte_tokens_stays_with_the_library() -> None:
    metadata = sentencepiece()
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    assert is_compiled(metadata)
    types[types.index(BYTE)] = 5
    assert not is_compiled(metadata)


def test_pieces_that_spell_byte_tokens_stay_with_the_library() -> None:
    assert not is_compiled(sentencepiece({"a": -1.0, "<0x0A>a": -2.0}))


def test_a_replacement_that_cannot_be_written_stays_with_the_library() -> None:
    metadata = byte_level()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens[tokens.index(spell("\ufffd")[0])] = "xx"
    assert not is_compiled(metadata)


def test_a_malformed_merge_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"merges\[0\]"):
        is_compiled(byte_level(["a b"]) | {"tokenizer.ggml.merges": ["a c"]})
