from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.errors import CheckpointError
from firstword.text.pipelines import (
    DEFAULT_PRE,
    PRE_TOKENIZERS,
    byte_level_pipeline,
    pre_tokenizer,
    sentencepiece_pipeline,
)
from firstword.text.vocabulary import Vocabulary
from tests.text.vocabularies import byte_level, sentencepiece, spell


def pieces(pre: str, text: str) -> list[str]:
    """How a pre-tokenizer cuts a text that is printable ASCII with spaces and line ends."""
    pipeline = byte_level_pipeline(Vocabulary.from_gguf(byte_level(pre=pre), "x"))
    assert pipeline.pre_tokenizer is not None
    cut = pipeline.pre_tokenizer.pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in cut]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("gpt-2", ["It", "'s", " 12345", "!!", "\n", " McDonald"]),
        ("smollm", ["It", "'s", " ", "1", "2", "3", "4", "5", "!!", "\n", " McDonald"]),
        ("llama-bpe", ["It", "'s", " ", "123", "45", "!!\n", " McDonald"]),
        ("qwen2", ["It", "'s", " ", "1", "2", "3", "4", "5", "!!\n", " McDonald"]),
        ("gpt-4o", ["It's", " ", "123", "45", "!!\n", " Mc", "Donald"]),
        ("tekken", ["It", "'s", " ", "1", "2", "3", "4", "5", "!!\n", " Mc", "Donald"]),
        ("deepseek-v3", ["It", "'s", " ", "123", "45", "!!\n", " McDonald"]),
        ("falcon", ["It", "'", "s", " ", "123", "45", "!!", "\n", " McDonald"]),
        ("default", ["It", "'", "s", " ", "123", "45", "!!", "\n", " McDonald"]),
    ],
)
def test_each_kind_cuts_as_its_models_do(pre: str, expected: list[str]) -> None:
    assert pieces(pre, "It's 12345!!\n McDonald") == expected


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_cutting_loses_nothing(pre: str) -> None:
    text = "It's  `12345`!!\r\n\n\n\tMcDonald's\u00a0字かな x_y  \n "
    assert "".join(pieces(pre, text)) == text


@pytest.mark.parametrize("pre", [None, "unheard-of", "default"])
def test_unknown_names_get_the_default(pre: str | None) -> None:
    assert pre_tokenizer(Vocabulary.from_gguf(byte_level(pre=pre), "x")) is DEFAULT_PRE


def test_whole_pieces_ignore_merges_where_the_models_do() -> None:
    for pre, whole in (("llama-bpe", 1), ("gpt-2", 3)):
        metadata = byte_level(pre=pre, merges=["a b", "ab c"])
        metadata["tokenizer.ggml.merges"] = []
        pipeline = byte_level_pipeline(Vocabulary.from_gguf(metadata, "x"))
        assert len(pipeline.encode("abc").ids) == whole


@pytest.mark.parametrize(
    ("merge", "problem"),
    [
        ("ab", "is not two tokens"),
        ("a ", "is not two tokens"),
        ("a c", "needs 'ac', which is no token"),
        ("ax b", "needs 'ax', which is no token"),
        ("", "is not two tokens"),
    ],
)
def test_malformed_merges_are_named(merge: str, problem: str) -> None:
    metadata = byte_level(["a b"])
    metadata["tokenizer.ggml.merges"] = ["a b", merge]
    vocab = Vocabulary.from_gguf(metadata, "test.gguf")
    with pytest.raises(CheckpointError, match=rf"tokenizer\.ggml\.merges\[1\]: .*{problem}"):
        byte_level_pipeline(vocab)


def test_sentencepiece_falls_back_to_bytes() -> None:
    pipeline = sentencepiece_pipeline(Vocabulary.from_gguf(sentencepiece(), "x"))
    assert pipeline.encode("é字").tokens == ["é", "<0xE5>", "<0xAD>", "<0x97>"]


SCORES = {
    piece: -float(rank)
    for rank, piece in enumerate(["ab", "▁a", "bb", "aab", "▁aab", "ba", "abb", "▁", "a", "b"])
}

SENTENCEPIECE = sentencepiece_pipeline(
    Vocabulary.from_gguf(sentencepiece(dict(sorted(SCORES.items()))), "x")
)


def best_score_first(text: str) -> list[str]:
    """The definition: join the neighbours with the best score, the leftmost of equals."""
    symbols = list(text)
    while True:
        pairs = [
            (SCORES[symbols[i] + symbols[i + 1]], -i)
            for i in range(len(symbols) - 1)
            if symbols[i] + symbols[i + 1] in SCORES
        ]
        if not pairs:
            return symbols
        at = -max(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@given(st.text("ab▁", max_size=30))
def test_sentencepiece_joins_the_best_score_first(text: str) -> None:
    assert SENTENCEPIECE.encode(text).tokens == best_score_first(text)


def test_sentencepiece_without_bytes_has_the_unknown_token() -> None:
    metadata = sentencepiece()
    for key in ("tokens", "token_type", "scores"):
        values = metadata[f"tokenizer.ggml.{key}"]
        assert isinstance(values, list)
        del values[3:259]
    pipeline = sentencepiece_pipeline(Vocabulary.from_gguf(metadata, "x"))
    assert pipeline.encode("a字字").tokens == ["a", "<unk>"]


def test_spelling_of_the_test_vocabularies() -> None:
    assert spell(" a\né") == "ĠaĊÃ©"
