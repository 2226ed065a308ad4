from __future__ import annotations

from collections.abc import Callable

import pytest

from firstword.errors import CheckpointError, UnsupportedModelError
from firstword.text.vocabulary import TokenType, Vocabulary
from tests.text.vocabularies import byte_level, sentencepiece

PREFIX = "tokenizer.ggml."


class Lazy:
    """An array as a memory-mapped reader would hand it out."""

    def __init__(self, items: list[object]) -> None:
        self._items = items

    def to_list(self) -> list[object]:
        return self._items


def test_reads_what_the_file_states() -> None:
    vocab = Vocabulary.from_gguf(
        byte_level(["a b"], chat_template="{{ x }}", add_eos_token=False), "test.gguf"
    )
    assert (vocab.model, vocab.pre, vocab.merges) == ("gpt2", "gpt-2", ["a b"])
    assert vocab.special_ids == {"bos": 257, "eos": 259}
    assert vocab.flags == {"add_bos_token": False, "add_eos_token": False}
    assert vocab.chat_template == "{{ x }}"
    assert vocab.ids_of(TokenType.CONTROL) == {
        "<|bos|>": 257,
        "<|im_start|>": 258,
        "<|im_end|>": 259,
    }


def test_lazy_arrays_and_absent_fields() -> None:
    metadata = sentencepiece()
    tokens = metadata[PREFIX + "tokens"]
    assert isinstance(tokens, list)
    metadata[PREFIX + "tokens"] = Lazy(tokens)
    vocab = Vocabulary.from_gguf(metadata, "test.gguf")
    assert vocab.tokens == tokens
    assert (vocab.pre, vocab.chat_template, vocab.flags, vocab.merges) == (None, None, {}, [])
    metadata = byte_level()
    del metadata[PREFIX + "token_type"]
    assert set(Vocabulary.from_gguf(metadata, "x").types) == {TokenType.NORMAL}


def test_of_equal_tokens_the_first_counts() -> None:
    metadata = byte_level(user_defined=["x1", "x1"])
    assert Vocabulary.from_gguf(metadata, "x").ids_of(TokenType.USER_DEFINED) == {"x1": 259}


def test_a_well_known_end_of_turn_is_a_control_token() -> None:
    vocab = Vocabulary.from_gguf(sentencepiece(user_defined=["<end_of_turn>"]), "x")
    assert "<end_of_turn>" in vocab.ids_of(TokenType.CONTROL)


@pytest.mark.parametrize("make", [byte_level, sentencepiece])
@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("model", None, "missing"),
        ("model", 3, "expected str, found int"),
        ("pre", ["gpt-2"], "expected str, found list"),
        ("tokens", None, "missing or empty"),
        ("tokens", [], "missing or empty"),
        ("tokens", "abc", "expected an array, found str"),
        ("tokens", ["a", 1], "expected an array of str, found int"),
        ("token_type", [1, 2], r"expected \d+ entries, found 2"),
        ("token_type", 1, "expected an array, found int"),
        ("bos_token_id", -1, r"expected an id below \d+, found -1"),
        ("eos_token_id", 10**6, r"expected an id below \d+, found 1000000"),
        ("eot_token_id", 1.0, "expected int, found float"),
        ("unknown_token_id", True, "expected int, found bool"),
        ("add_bos_token", 1, "expected bool, found int"),
    ],
)
def test_malformed_fields_are_named(
    make: Callable[[], dict[str, object]], key: str, value: object, problem: str
) -> None:
    metadata = make()
    metadata[PREFIX + key] = value
    with pytest.raises(CheckpointError, match=rf"^test\.gguf: tokenizer\.ggml\.{key}: {problem}"):
        Vocabulary.from_gguf(metadata, "test.gguf")


@pytest.mark.parametrize(
    ("scores", "problem"),
    [
        (None, "entries, found 0"),
        ([0.0], "entries, found 1"),
        ([1, 2], "expected an array of float, found int"),
        ([float("nan")] * 266, "NaN"),
    ],
)
def test_malformed_scores_are_named(scores: object, problem: str) -> None:
    metadata = sentencepiece()
    metadata[PREFIX + "scores"] = scores
    with pytest.raises(CheckpointError, match=rf"tokenizer\.ggml\.scores: .*{problem}"):
        Vocabulary.from_gguf(metadata, "test.gguf")


def test_token_types_out_of_range() -> None:
    metadata = byte_level(controls=["<s>"])
    metadata[PREFIX + "token_type"] = [1] * 256 + [7]
    with pytest.raises(CheckpointError, match="expected values 1 to 6, found 7"):
        Vocabulary.from_gguf(metadata, "x")


@pytest.mark.parametrize("token", ["", "<0x0>", "<0xGG>", "<0x0A> "])
def test_byte_tokens_spell_their_byte(token: str) -> None:
    metadata = sentencepiece()
    tokens = metadata[PREFIX + "tokens"]
    assert isinstance(tokens, list)
    tokens[10] = token
    with pytest.raises(CheckpointError, match="expected the byte token 10 to be like <0x0A>"):
        Vocabulary.from_gguf(metadata, "x")


def test_other_kinds_of_tokenizer_are_not_built() -> None:
    with pytest.raises(UnsupportedModelError, match="'bert' is not built: only gpt2 and llama"):
        Vocabulary.from_gguf({PREFIX + "model": "bert"}, "x")


def test_chat_template_of_a_wrong_type() -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.chat_template: expected str"):
        Vocabulary.from_gguf(byte_level(chat_template=7), "x")
