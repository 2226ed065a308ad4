"""The compiled encoders against the pipelines of the `tokenizers` library, which define the ids."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstword.text.compiled import PackedStrings, compile_vocabulary
from firstword.text.native import NativeEncoder, merge_slots, piece_slots
from firstword.text.pipelines import LibraryEncoder
from firstword.text.vocabulary import Vocabulary
from firstword.weights.gguf import GGUFFile
from tests.text.vocabularies import byte_level, sentencepiece

CUT_NAMES = ["gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2"]
_CONTRACTIONS = ["'s", "'LL", "'ſ", "'Re", "don't", "WE'VE"]
_NUMBERS = ["1234567", "٣٤٥", "½"]
_SPACES = [
    "\r\n",
    "\n\n ",
    "\t",
    " ",
    "   ",
    "\u3000",
    "\xa0",
    "\x85",
    "\u2028",
    "▁",
    " word",
    " !?\n",
]
_SIGNS = ["\0", "\x7f", "!?", "👩\u200d👧", "e\u0301", "\ufffd", "\U0010ffff", "\u0378"]
_WORDS = ["重力", "\u01c5", "ÿ", "abc" * 9]
odd = st.sampled_from([*_CONTRACTIONS, *_NUMBERS, *_SPACES, *_SIGNS, *_WORDS])
texts = st.lists(odd | st.characters(codec="utf-8") | st.text("ab '1\n ", max_size=9)).map("".join)


class Twins:
    """The two encoders of one vocabulary."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        vocab = Vocabulary.from_gguf(metadata, "test.gguf")
        compiled = compile_vocabulary(vocab)
        assert compiled is not None
        self.library, self.native = LibraryEncoder(vocab), NativeEncoder(compiled.tables)

    def check(self, text: str) -> None:
        """Both give the same ids and spans."""
        ids, spans = self.native.encode_with_spans(text)
        assert (ids, spans) == self.library.encode_with_spans(text)
        assert self.native.encode(text) == ids


def random_merges(seed: int) -> list[str]:
    """Merges of words made of the alphabet, each of tokens that come before it."""
    random_ = random.Random(seed)
    tokens = [c for c in "abcdstlve'" if c != " "] + ["Ġ", "1", "2", "Ã", "©", "Ċ"]
    merges = []
    for _ in range(60):
        left, right = random_.choice(tokens), random_.choice(tokens)
        tokens.append(left + right)
        merges.append(f"{left} {right}")
    return merges


def random_pieces(seed: int) -> dict[str, float]:
    """Words over a small alphabet, with scores that are often equal."""
    random_ = random.Random(seed)
    letters = ["a", "b", "▁", "é", "重", "1"]
    words = {"".join(random_.choices(letters, k=random_.randint(1, 6))) for _ in range(80)}
    return {word: float(random_.randint(-9, 0)) for word in [*letters, *sorted(words)]}


UNWRITABLE = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2}
"""Bytes of valid UTF-8 for which SmolLM2's vocabulary has no token."""

BYTE_LEVEL = [Twins(byte_level(random_merges(n), pre=pre)) for n, pre in enumerate(CUT_NAMES)]
SENTENCEPIECE = [Twins(sentencepiece(random_pieces(seed))) for seed in range(4)]


@settings(deadline=None, max_examples=300)
@given(texts)
def test_byte_level_ids_equal_the_librarys(text: str) -> None:
    for twins in BYTE_LEVEL:
        twins.check(text)


@settings(deadline=None, max_examples=300)
@given(texts | st.text("ab▁é重1c\n"))
def test_sentencepiece_ids_equal_the_librarys(text: str) -> None:
    for twins in SENTENCEPIECE:
        twins.check(text.replace(" ", "▁"))


def test_merges_of_equal_pairs_take_the_last_place() -> None:
    twins = Twins(byte_level(["a b", "b c", "a b"]))
    twins.check("abc")


@pytest.mark.real_model
def test_real_models_give_the_librarys_ids(smollm2_path: Path, gemma3_path: Path) -> None:
    twins = []
    for path in (smollm2_path, gemma3_path):
        with GGUFFile.open(path) as file:
            twins.append(Twins(file.metadata))
    smollm2, gemma3 = twins

    @settings(deadline=None, max_examples=300)
    @given(texts)
    def check(text: str) -> None:
        smollm2.check("".join(c for c in text if not {*c.encode()} & UNWRITABLE))
        gemma3.check(text.replace(" ", "▁"))

    check()


@pytest.mark.parametrize("name", CUT_NAMES)
def test_every_character_is_of_the_librarys_class(name: str) -> None:
    # Between a letter and a digit, each character of Unicode shows by where pieces end what it is.
    twins = BYTE_LEVEL[CUT_NAMES.index(name)]
    codes = [*range(0xD800), *range(0xE000, 0x110000)]
    step = 1 if name == "gpt-2" else 37
    text = "".join(f"a{chr(code)}1" for code in codes[::step])
    assert twins.native.encode(text) == twins.library.encode(text)


@pytest.mark.parametrize("unit", ["a", "ab", "▁", "重力", "\x01", "ba▁1"])
def test_long_texts_without_spaces_take_no_long_time(unit: str) -> None:
    text = unit * (400_000 // len(unit))
    for twins in (SENTENCEPIECE[0], BYTE_LEVEL[0]):
        start = time.perf_counter()
        ids = twins.native.encode(text)
        assert time.perf_counter() - start < 5
        assert ids


def test_bytes_that_are_not_utf8_do_no_harm() -> None:
    for twins in (SENTENCEPIECE[0], BYTE_LEVEL[0]):
        encoder = twins.native._encoder
        for raw in (b"\xff", b"a\xe9", b"\xe9\x87", b"\xf0\x9f\x91", b"\x80\x80a"):
            assert encoder.encode(raw)
            encoder.encode_with_spans(raw)


def test_slots_find_every_string_and_merge() -> None:
    strings = PackedStrings.of(str(i % 700).encode() for i in range(1000))
    slots = piece_slots(strings, np.arange(1000, dtype=np.int32))
    assert sorted(slots[slots >= 0].tolist()) == list(range(700))  # the first of equal ones
    merges = np.array([[i, i + 1, i + 2] for i in range(500)] * 2, np.int32)
    found = merge_slots(merges)
    assert sorted(found[found >= 0].tolist()) == list(range(500, 1000))  # the last of equal ones


def test_arrays_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="an id without a string"):
        piece_slots(PackedStrings.of([b"a"]), np.array([1], np.int32))
    with pytest.raises(ValueError, match="three ids"):
        merge_slots(np.zeros((2, 2), np.int32))
