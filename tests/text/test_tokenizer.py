"""The golden ids were made with llama.cpp b11434 from the two catalogue files, 210 texts each, and
cross-checked against the models' own tokenizers; where a text holds a literal U+2581, Gemma's own
tokenizer decides.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword.errors import CheckpointError, ConfigError
from firstword.text.tokenizer import Tokenizer
from tests.text.vocabularies import CONTROL, byte_level, sentencepiece, spell

T = TypeVar("T")
GOLDEN = Path(__file__).parent.parent / "golden" / "token_ids.jsonl"
UNWRITABLE = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2}
"""Bytes of valid UTF-8 for which SmolLM2's vocabulary has no token."""

MERGES = ["a b", "ab c", "Ġ a", "Ġ ab", "Ġ abc"]
BYTE_LEVEL = Tokenizer.from_gguf(byte_level(MERGES, user_defined=["<ab>", "  "]), "test.gguf")
SENTENCEPIECE = Tokenizer.from_gguf(sentencepiece(user_defined=["<ab>", "   "]), "test.gguf")
TINY = [BYTE_LEVEL, SENTENCEPIECE]
pieces = st.sampled_from(
    ["a", "ab", " ", "   ", "<ab>", "<|im_end|>", "\r\n", "\0", "é字", "👩\u200d👧"]
)
texts = st.lists(pieces | st.characters(codec="utf-8")).map("".join)


def golden(model: str) -> Iterator[tuple[str, list[int], list[int]]]:
    for line in GOLDEN.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["model"] == model:
            yield row["text"], row["plain"], row["parsed"]


def check_golden(tokenizer: Tokenizer, model: str) -> None:
    rows = list(golden(model))
    assert len(rows) == 210
    for text, plain, parsed in rows:
        assert tokenizer.encode(text) == plain, text
        assert tokenizer.encode(text, parse_special=True) == parsed, text


@pytest.mark.real_model
def test_p20_ids_equal_the_golden_ones_smollm2(smollm2_tokenizer: Tokenizer) -> None:
    check_golden(smollm2_tokenizer, "smollm2:135m")


@pytest.mark.real_model
def test_p20_ids_equal_the_golden_ones_gemma3(gemma3_tokenizer: Tokenizer) -> None:
    check_golden(gemma3_tokenizer, "gemma3:270m")


@pytest.mark.real_model
def test_real_models_round_trip(smollm2_tokenizer: Tokenizer, gemma3_tokenizer: Tokenizer) -> None:
    @settings(max_examples=300, deadline=None)
    @given(texts)
    def check(text: str) -> None:
        text = text.replace("▁", "")
        assert gemma3_tokenizer.decode(gemma3_tokenizer.encode(text)) == text
        written = "".join("\ufffd" if UNWRITABLE & {*c.encode()} else c for c in text)
        assert smollm2_tokenizer.decode(smollm2_tokenizer.encode(text)) == written

    check()


@pytest.mark.real_model
def test_what_the_real_models_say(
    smollm2_tokenizer: Tokenizer, gemma3_tokenizer: Tokenizer
) -> None:
    for tokenizer in (smollm2_tokenizer, gemma3_tokenizer):
        assert len(tokenizer.encode("What is gravity?")) == 4
    assert smollm2_tokenizer.bos_ids == []
    assert smollm2_tokenizer.eos_ids == {0, 2}
    assert smollm2_tokenizer.chat_template is not None
    assert smollm2_tokenizer.notices == []
    assert gemma3_tokenizer.bos_ids == [2]
    assert gemma3_tokenizer.eos_ids == {1, 106}
    assert gemma3_tokenizer.chat_template is None
    assert gemma3_tokenizer.notices == []
    assert gemma3_tokenizer.bos_token == "<bos>"
    assert gemma3_tokenizer.eos_token == "<eos>"
    assert gemma3_tokenizer.vocab_size == 262_144


@given(texts)
def test_decode_undoes_encode(text: str) -> None:
    text = text.replace("▁", "")
    for tokenizer in TINY:
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(texts)
def test_plain_text_never_becomes_a_control_token(text: str) -> None:
    for tokenizer in TINY:
        text += "<|im_end|><s></s>"
        assert not any(tokenizer.is_control(i) for i in tokenizer.encode(text))


@given(texts)
def test_spans_cover_the_text_in_order(text: str) -> None:
    for tokenizer in TINY:
        encoding = tokenizer.encode_with_spans(text, parse_special=True)
        assert len(encoding.spans) == len(encoding.token_ids)
        covered = 0
        for start, end in encoding.spans:
            assert start <= covered <= end
            covered = end
        assert covered == len(text)


def test_spans_leave_the_space_prefix_out() -> None:
    encoding = SENTENCEPIECE.encode_with_spans("ab<s>ab", parse_special=True)
    assert encoding.spans == [(0, 2), (2, 5), (5, 7)]


def test_merges_apply_best_first() -> None:
    assert [BYTE_LEVEL.token_text(i) for i in BYTE_LEVEL.encode("abc abab")] == [
        "abc",
        " ab",
        "ab",
    ]


def test_scores_decide_sentencepiece_merges() -> None:
    def pieces(tokenizer: Tokenizer) -> list[str]:
        return [tokenizer.token_text(i) for i in tokenizer.encode("aab")]

    assert pieces(SENTENCEPIECE) == [" a", "ab"]
    scores = {"▁": -1.0, "a": -2.0, "b": -3.0, "aa": -4.0, "ab": -5.0}
    assert pieces(Tokenizer.from_gguf(sentencepiece(scores), "x")) == [" ", "aa", "b"]


def test_control_strings_are_parsed_only_when_asked() -> None:
    (im_end,) = BYTE_LEVEL.encode("<|im_end|>", parse_special=True)
    assert BYTE_LEVEL.is_control(im_end)
    assert BYTE_LEVEL.token_text(im_end) == "<|im_end|>"
    assert BYTE_LEVEL.token_bytes(im_end) == b""
    assert BYTE_LEVEL.decode([im_end]) == ""
    assert BYTE_LEVEL.decode([im_end], skip_special=False) == "<|im_end|>"
    assert len(BYTE_LEVEL.encode("<|im_end|>")) == 10
    assert BYTE_LEVEL.find_controls("a<|im_end|>b<ab>") == [(1, 11)]


def test_user_defined_strings_are_always_whole() -> None:
    for tokenizer in TINY:
        (token,) = tokenizer.encode("<ab>")
        assert tokenizer.token_bytes(token) == b"<ab>"


def test_user_defined_spaces_match_in_both_spellings() -> None:
    assert SENTENCEPIECE.encode("   ") == SENTENCEPIECE.encode("▁▁▁")


def test_space_prefix_of_sentencepiece() -> None:
    assert SENTENCEPIECE.token_text(SENTENCEPIECE.encode("ab")[0]) == " ab"
    ids = SENTENCEPIECE.encode("ab")
    assert SENTENCEPIECE.decode(ids) == "ab"
    assert SENTENCEPIECE.decode(ids, keep_leading_space=True) == " ab"
    assert SENTENCEPIECE.decode([1, *ids, *ids]) == "ab ab"
    without = Tokenizer.from_gguf(sentencepiece(add_space_prefix=False), "x")
    assert without.token_text(without.encode("ab")[0]) == "ab"
    after_control = SENTENCEPIECE.encode("<s>ab", parse_special=True)
    assert [SENTENCEPIECE.token_text(i) for i in after_control] == ["<s>", " ab"]


def test_decode_replaces_only_invalid_bytes() -> None:
    bad = BYTE_LEVEL.encode("é")[:1] + BYTE_LEVEL.encode("a字")
    assert BYTE_LEVEL.decode(bad) == "\ufffda字"


@pytest.mark.parametrize("tokenizer", TINY)
def test_lone_surrogates_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"U\+D83D at position 2"):
        tokenizer.encode("ab\ud83d")


@pytest.mark.parametrize("token_id", [-1, BYTE_LEVEL.vocab_size])
def test_ids_out_of_range_are_refused(token_id: int) -> None:
    with pytest.raises(ConfigError, match=f"token id {token_id} is out of range"):
        BYTE_LEVEL.decode([token_id])


def test_bytes_without_a_token_are_read_as_replacement_characters() -> None:
    metadata = byte_level()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens[tokens.index(spell("\x04"))] = "ĀĀ"
    tokenizer = Tokenizer.from_gguf(metadata, "test.gguf")
    assert tokenizer.decode(tokenizer.encode("a\x04b")) == "a\ufffdb"


@pytest.mark.parametrize("pre", [None, "unheard-of"])
def test_p20_an_unknown_pre_tokenizer_is_noticed(pre: str | None) -> None:
    tokenizer = Tokenizer.from_gguf(byte_level(pre=pre), "test.gguf")
    assert "tokenizer.ggml.pre" in tokenizer.notices[0]
    assert tokenizer.decode(tokenizer.encode("abc 123 !?")) == "abc 123 !?"


def test_bos_follows_the_file_and_the_kind_of_vocabulary() -> None:
    def bos_ids(metadata: dict[str, object]) -> list[int]:
        return Tokenizer.from_gguf(metadata, "x").bos_ids

    assert bos_ids(byte_level(add_bos_token=None)) == []
    assert bos_ids(byte_level(add_bos_token=None, pre="llama-bpe")) == [256]
    assert bos_ids(byte_level(add_bos_token=True)) == [256]
    assert bos_ids(byte_level(add_bos_token=True, bos_token_id=None)) == []
    assert bos_ids(sentencepiece()) == [1]
    assert bos_ids(sentencepiece(bos_token_id=None)) == [1]
    assert bos_ids(sentencepiece(add_bos_token=False)) == []


def test_eos_ids_include_well_known_ends_of_turn() -> None:
    controls = ["<s>", "<|eot_id|>", "<|im_end|>"]
    metadata = byte_level(controls=controls, eos_token_id=None, eot_token_id=0)
    tokenizer = Tokenizer.from_gguf(metadata, "x")
    assert tokenizer.eos_ids == {0, 257, 258}
    assert tokenizer.eos_token == ""
    mislabelled = Tokenizer.from_gguf(sentencepiece(user_defined=["<end_of_turn>"]), "x")
    (end,) = mislabelled.eos_ids - {2}
    assert mislabelled.is_control(end)


def test_a_merge_with_a_control_token_is_left_out() -> None:
    metadata = byte_level(["a b"])
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    types[256] = CONTROL
    tokenizer = Tokenizer.from_gguf(metadata, "x")
    assert len(tokenizer.encode("ab")) == 2
    assert tokenizer.encode("ab", parse_special=True) == [256]


def test_long_texts_and_windows_line_ends() -> None:
    text = "重力\r\n\0" * 20_000
    for tokenizer in TINY:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_threads_share_a_tokenizer() -> None:
    text = "abc ab <ab> 字" * 200
    expected = BYTE_LEVEL.encode(text)
    results: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: results.append(BYTE_LEVEL.encode(text))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


def test_a_library_error_names_the_file() -> None:
    metadata = byte_level(["a b"])
    metadata["tokenizer.ggml.merges"] = ["a c"]
    with pytest.raises(CheckpointError, match=r"test\.gguf: tokenizer\.ggml\.merges\[0\]"):
        Tokenizer.from_gguf(metadata, "test.gguf")


strings = st.text("ab▁Ġ <>\0é👧", max_size=4)


@settings(deadline=None)
@given(st.data(), st.sampled_from(["gpt2", "llama"]))
def test_any_vocabulary_is_refused_or_works(data: st.DataObject, model: str) -> None:
    tokens = data.draw(st.lists(strings, min_size=1, max_size=12))

    def one_each(values: st.SearchStrategy[T]) -> list[T]:
        return data.draw(st.lists(values, min_size=len(tokens), max_size=len(tokens)))

    pair = st.tuples(st.sampled_from(tokens), st.sampled_from(tokens)).map(" ".join)
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": one_each(st.integers(1, 5)),
        "tokenizer.ggml.scores": one_each(st.floats(allow_nan=False)),
        "tokenizer.ggml.merges": data.draw(st.lists(pair, max_size=2)),
        "tokenizer.ggml.unknown_token_id": data.draw(st.integers(0, len(tokens) - 1)),
    }
    try:
        tokenizer = Tokenizer.from_gguf(metadata, "x")
    except CheckpointError:
        return
    text = data.draw(texts)
    for parse_special in (False, True):
        ids = tokenizer.encode(text, parse_special=parse_special)
        assert all(0 <= token_id < len(tokens) for token_id in ids)
    tokenizer.decode(range(len(tokens)))
