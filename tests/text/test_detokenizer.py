from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstword.errors import ConfigError
from firstword.text.detokenizer import Detokenizer
from firstword.text.tokenizer import Tokenizer
from tests.text.vocabularies import byte_level, sentencepiece

BYTE_LEVEL = Tokenizer.from_gguf(byte_level(["a b", "Ġ ab"], user_defined=["字"]), "x")
SENTENCEPIECE = Tokenizer.from_gguf(sentencepiece(user_defined=[" <b>"]), "x")


def deltas(tokenizer: Tokenizer, ids: list[int], *, keep_leading_space: bool = False) -> list[str]:
    detokenizer = Detokenizer(tokenizer, keep_leading_space=keep_leading_space)
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.flush()]


@given(st.data(), st.sampled_from([BYTE_LEVEL, SENTENCEPIECE]), st.booleans())
def test_any_ids_join_to_the_decoded_text(
    data: st.DataObject, tokenizer: Tokenizer, keep: bool
) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1)))
    parts = deltas(tokenizer, ids, keep_leading_space=keep)
    assert "".join(parts) == tokenizer.decode(ids, keep_leading_space=keep)
    for part in parts:
        part.encode()  # no lone surrogates


@given(st.text(st.sampled_from("a é字👩\u200d👧🏽🇫🇷"), min_size=1))
def test_valid_text_comes_in_whole_characters(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, SENTENCEPIECE):
        parts = deltas(tokenizer, tokenizer.encode(text))
        assert "".join(parts) == text
        assert "\ufffd" not in "".join(parts)
        assert parts[-1] == ""


def test_p15_a_character_is_held_until_it_is_whole() -> None:
    assert deltas(BYTE_LEVEL, BYTE_LEVEL.encode("👧a")) == ["", "", "", "👧", "a", ""]


def test_p15_an_unfinished_character_is_replaced_at_the_end_only() -> None:
    ids = BYTE_LEVEL.encode("a👧")
    assert deltas(BYTE_LEVEL, ids[:-1]) == ["a", "", "", "", "\ufffd"]
    assert deltas(BYTE_LEVEL, [*ids[:-1], ids[0]])[-2:] == ["\ufffda", ""]


def test_control_tokens_do_not_end_the_start_of_a_text() -> None:
    ids = [1, *SENTENCEPIECE.encode("ab")]
    assert "".join(deltas(SENTENCEPIECE, ids)) == "ab"
    assert "".join(deltas(SENTENCEPIECE, ids, keep_leading_space=True)) == " ab"


def test_an_id_out_of_range_is_refused() -> None:
    with pytest.raises(ConfigError, match="token id 100000 is out of range"):
        Detokenizer(BYTE_LEVEL).push(100_000)


@pytest.mark.real_model
def test_real_models_join_to_the_decoded_text(
    smollm2_tokenizer: Tokenizer, gemma3_tokenizer: Tokenizer
) -> None:
    text = "Gravity 重力 👩\u200d👩\u200d👧\u200d👦 \r\n\t e\u0301 <b>x</b>  \ufb01"
    for tokenizer in (smollm2_tokenizer, gemma3_tokenizer):
        ids = tokenizer.encode(text)
        assert "".join(deltas(tokenizer, ids)) == text
        for shift in range(0, 40_000, 97):  # unrelated tokens side by side
            some = [(token_id + shift) % tokenizer.vocab_size for token_id in ids]
            assert "".join(deltas(tokenizer, some)) == tokenizer.decode(some)
