"""Bytes of tokens join to the text, whatever the vocabulary."""

from __future__ import annotations

import math

from firstword.batch import Candidate
from firstword.engine.outputs import TokenLogprob
from firstword.sampling.params import SamplingParams
from firstword.server.openai.logprobs import LOWEST, LogprobWriter, writers
from firstword.text.tokenizer import Tokenizer
from tests.server.fake_llm import byte_tokenizer
from tests.text import vocabularies


def logprob(token_id: int, value: float = -0.5) -> TokenLogprob:
    return TokenLogprob(token_id, value, (Candidate(token_id, value, 0.5),), probability=0.25)


def test_p15_bytes_of_half_characters_are_exact() -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode("é!")
    writer = LogprobWriter(tokenizer, skip_special=True, keep_leading_space=False)
    entries = writer.chat([logprob(token) for token in ids])
    assert [entry["bytes"] for entry in entries] == [[0xC3], [0xA9], [0x21]]
    assert entries[0]["token"] == "\ufffd"


def test_control_tokens_have_bytes_only_where_they_are_text() -> None:
    tokenizer = byte_tokenizer()
    (end,) = tokenizer.encode("<|im_end|>", parse_special=True)
    hidden = LogprobWriter(tokenizer, skip_special=True, keep_leading_space=False)
    shown = LogprobWriter(tokenizer, skip_special=False, keep_leading_space=False)
    assert hidden.chat([logprob(end)])[0]["bytes"] == []
    assert bytes(shown.completion([logprob(end)])["bytes"][0]) == b"<|im_end|>"  # type: ignore[call-overload]


def test_space_before_a_text_is_no_byte_of_it() -> None:
    tokenizer = Tokenizer.from_gguf(vocabularies.sentencepiece(), "fake.gguf")
    ids = tokenizer.encode("ab ab")
    for keep, text in ((False, b"ab ab"), (True, b" ab ab")):
        writer = LogprobWriter(tokenizer, skip_special=True, keep_leading_space=keep)
        lists = writer.completion([logprob(token) for token in ids])
        assert b"".join(bytes(value) for value in lists["bytes"]) == text  # type: ignore[call-overload]


def test_offsets_count_characters() -> None:
    tokenizer = byte_tokenizer()
    writer = LogprobWriter(tokenizer, skip_special=True, keep_leading_space=True)
    lists = writer.completion([logprob(token) for token in tokenizer.encode("é!a")])
    assert lists["text_offset"] == [0, 0, 1, 2]


def test_p21_impossible_tokens_can_be_written() -> None:
    writer = LogprobWriter(byte_tokenizer(), skip_special=True, keep_leading_space=True)
    entry = writer.chat([logprob(64, -math.inf)])[0]
    assert (entry["logprob"], entry["sampled_probability"]) == (LOWEST, 0.25)


def test_writers_only_where_asked_for() -> None:
    tokenizer = byte_tokenizer()
    assert writers(tokenizer, SamplingParams(), 3, is_raw=True) == []
    assert len(writers(tokenizer, SamplingParams(logprobs=0), 3, is_raw=True)) == 3
