from __future__ import annotations

import pytest

from firstword.text.compiled import CompiledVocabulary, compile_vocabulary
from firstword.text.tokenizer import Tokenizer
from firstword.text.vocabulary import Vocabulary
from firstword.text.vocabulary_file import file_key, pack, unpack
from tests.text.vocabularies import byte_level, sentencepiece

KEY = file_key(b"model")
TEXT = "ab abc <ab> 字\n 12"


def compiled_of(metadata: dict[str, object]) -> CompiledVocabulary:
    compiled = compile_vocabulary(Vocabulary.from_gguf(metadata, "test.gguf"))
    assert compiled is not None
    return compiled


CONTENTS = [
    pack(compiled_of(metadata), KEY)
    for metadata in (
        byte_level(["a b", "ab c"], pre="llama-bpe", user_defined=["<ab>"]),
        sentencepiece(chat_template="{{ x }}", add_bos_token=True),
    )
]


@pytest.mark.parametrize("metadata", [byte_level(["a b"], pre="llama-bpe"), sentencepiece()])
def test_what_was_packed_comes_back(metadata: dict[str, object]) -> None:
    compiled = compiled_of(metadata)
    found = unpack(memoryview(pack(compiled, KEY)), KEY, "test.gguf")
    assert found is not None
    assert list(found.vocab.tokens) == list(compiled.vocab.tokens)
    for name in ("model", "pre", "types", "special_ids", "flags", "chat_template", "source"):
        assert getattr(found.vocab, name) == getattr(compiled.vocab, name)
    before = Tokenizer(compiled.vocab, compiled.tables)
    after = Tokenizer(found.vocab, found.tables)
    ids = before.encode(TEXT, parse_special=True)
    assert after.encode(TEXT, parse_special=True) == ids
    assert after.decode(ids) == before.decode(ids)
    assert (after.eos_ids, after.bos_ids) == (before.eos_ids, before.bos_ids)


def test_files_of_other_models_and_formats_are_refused() -> None:
    for content in CONTENTS:
        assert unpack(memoryview(content), file_key(b"other"), "x") is None
        assert unpack(memoryview(b"fwvocab9" + content[8:]), KEY, "x") is None


@pytest.mark.parametrize("content", CONTENTS)
def test_damaged_files_are_refused(content: bytes) -> None:
    # Every byte of the header and the description, and many of the arrays.
    for at in [*range(1200), *range(1200, len(content), 97), len(content) - 1]:
        damaged = bytearray(content)
        for bit in (1, 128):
            damaged[at] ^= bit
            assert unpack(memoryview(damaged), KEY, "x") is None, at
        assert unpack(memoryview(content[:at]), KEY, "x") is None, at
