from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword.text.stream import TextStream
from firstword.text.tokenizer import Tokenizer
from tests.text.test_stop import cut
from tests.text.vocabularies import byte_level, sentencepiece

TINY = [
    Tokenizer.from_gguf(byte_level(["a b", "Ġ ab"], user_defined=["字\n"]), "x"),
    Tokenizer.from_gguf(sentencepiece(user_defined=[" <b>"]), "x"),
]
letters = st.sampled_from("ab \n é字👩\u200d👧🏽🇫🇷\ufffd")
stop_strings = st.lists(st.text(letters, min_size=1, max_size=4), max_size=4)


def stream_text(
    tokenizer: Tokenizer, ids: list[int], stops: list[str]
) -> tuple[list[str], str | None]:
    stream = TextStream(tokenizer, stops)
    parts = [*(stream.push(token_id) for token_id in ids), stream.finish()]
    return parts, stream.stop_reason


def check_equal_to_whole(tokenizer: Tokenizer, ids: list[int], stops: list[str]) -> None:
    parts, reason = stream_text(tokenizer, ids, stops)
    assert ("".join(parts), reason) == cut(tokenizer.decode(ids), stops)
    for part in parts:
        part.encode()  # whole characters: no lone surrogates


@given(st.sampled_from(TINY), st.text(letters), stop_strings)
def test_streamed_text_is_the_whole_text(tokenizer: Tokenizer, text: str, stops: list[str]) -> None:
    check_equal_to_whole(tokenizer, tokenizer.encode(text), stops)
    # Every byte by itself: the finest pieces a text can come in.
    tokens = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    pieces = [tokens[bytes([byte])] for byte in text.encode()]
    check_equal_to_whole(tokenizer, pieces, stops)


@given(st.data(), st.sampled_from(TINY), stop_strings)
def test_any_ids_stream_to_the_whole_text(
    data: st.DataObject, tokenizer: Tokenizer, stops: list[str]
) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    check_equal_to_whole(tokenizer, ids, stops)


def test_nothing_comes_after_a_stop_string() -> None:
    (tokenizer, _) = TINY
    parts, reason = stream_text(tokenizer, tokenizer.encode("ab\n\nab👧"), ["\n\n"])
    assert "".join(parts) == "ab"
    assert reason == "\n\n"


def test_a_replacement_character_at_the_end_can_stop_too() -> None:
    (tokenizer, _) = TINY
    half = tokenizer.encode("a👧")[:-1]
    assert stream_text(tokenizer, half, ["\ufffd"])[1] == "\ufffd"


def test_a_continued_prompt_keeps_its_space() -> None:
    tokenizer = TINY[1]
    ids = tokenizer.encode("ab")
    stream = TextStream(tokenizer, keep_leading_space=True)
    assert "".join(map(stream.push, ids)) + stream.finish() == " ab"


@pytest.mark.real_model
def test_real_models_stream_to_the_whole_text(
    smollm2_tokenizer: Tokenizer, gemma3_tokenizer: Tokenizer
) -> None:
    @settings(max_examples=100, deadline=None)
    @given(st.sampled_from([smollm2_tokenizer, gemma3_tokenizer]), st.text(letters), stop_strings)
    def check(tokenizer: Tokenizer, text: str, stops: list[str]) -> None:
        check_equal_to_whole(tokenizer, tokenizer.encode(text), stops)

    check()
