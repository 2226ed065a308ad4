"""A miss in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from firstword.kvcache.sources import CacheMiss
from firstword.trace.misses import ExplainedMiss, explained


def letters(token_ids: Sequence[int]) -> str:
    return "".join(map(chr, token_ids))


CLOCK = ExplainedMiss("different_text", 212, 1976, "The time is", " 10:42", " 10:41")


def test_tokens_become_texts_with_what_is_before_them() -> None:
    prompt = tuple(map(ord, "The system prompt of 10:42"))
    miss = CacheMiss("different_text", 25, 1, prompt[25:], (ord("1"), ord("!")))
    assert explained(miss, prompt, letters) == ExplainedMiss(
        "different_text", 25, 1, " of 10:4", "2", "1!"
    )


def test_a_prompt_whose_tokens_are_not_known_has_no_text_before() -> None:
    miss = CacheMiss("evicted", 3, 2, (65, 66), of_window=True)
    assert explained(miss, (), letters) == ExplainedMiss("evicted", 3, 2, "", "AB", "", True)


def test_p03_an_edit_is_told_with_its_place_both_texts_and_its_price() -> None:
    assert CLOCK.in_words() == (
        "prompt differs from the nearest cached one at token 212, after 'The time is' "
        "(cached: ' 10:41', now: ' 10:42'): 1,976 tokens read"
    )


def test_what_may_be_the_text_of_another_and_what_is_not_there_are_left_out() -> None:
    assert replace(CLOCK, position=0, before="", cached_text="", num_tokens=1).in_words() == (
        "prompt differs from the nearest cached one at token 0 (now: ' 10:42'): 1 token read"
    )


def test_line_breaks_stay_on_the_line() -> None:
    assert "'a\\nb'" in replace(CLOCK, text="a\nb").in_words()


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("too_short", "too few to be reused or to be worth loading"),
        ("evicted", "were cached and gave way to other text"),
        ("expired", "were on disk and not used for too long"),
        ("other_settings", "another model or other settings"),
    ],
)
def test_each_cause_has_its_words(cause: str, words: str) -> None:
    told = ExplainedMiss(cause, 64, 1000, "", "", "").in_words()
    assert told.startswith("1,000 tokens from token 64 on")
    assert words in told


def test_p01_the_layers_with_a_window_are_named() -> None:
    told = ExplainedMiss("evicted", 64, 1000, "", "", "", of_window=True).in_words()
    assert "are cached but for the layers with a window" in told


def test_as_plain_values_it_has_the_sentence_too() -> None:
    told = CLOCK.to_dict()
    assert told["message"] == CLOCK.in_words()
    assert (told["text"], told["cached_text"], told["position"]) == (" 10:42", " 10:41", 212)
