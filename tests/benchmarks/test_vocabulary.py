from __future__ import annotations

import pytest

from benchmarks.vocabulary import CONTROL, byte_alphabet, byte_level


def test_it_has_the_size_asked_for_and_no_token_twice() -> None:
    tokens = byte_level(40_000).metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    assert len(tokens) == len(set(tokens)) == 40_000


def test_every_merge_joins_tokens_that_come_before_their_union() -> None:
    metadata = byte_level(3_000).metadata
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    assert isinstance(tokens, list) and isinstance(merges, list)
    place = {token: i for i, token in enumerate(tokens)}
    assert len(merges) == 3_000 - 256 - 256
    for merge in merges:
        left, right = merge.split(" ")
        assert max(place[left], place[right]) < place[left + right]


def test_control_tokens_end_it() -> None:
    metadata = byte_level(1_000, num_controls=10).metadata
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list) and isinstance(types, list)
    assert types.count(CONTROL) == 10 and set(types[-10:]) == {CONTROL}
    assert tokens.index("<|begin_of_text|>") == metadata["tokenizer.ggml.bos_token_id"] == 990
    assert tokens.index("<|eot_id|>") == metadata["tokenizer.ggml.eos_token_id"] == 999


def test_the_alphabet_has_a_character_for_each_byte() -> None:
    alphabet = byte_alphabet()
    assert len(set(alphabet)) == 256
    assert alphabet[0x41] == "A" and alphabet[0x20] == "Ġ"


def test_too_small_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match="511"):
        byte_level(511)
