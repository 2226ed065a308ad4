from __future__ import annotations

import asyncio

import pytest

from firstword.bench.serving.prompts import OPENING, WORDS, PromptMaker, Sizer, calibrate
from firstword.errors import ConfigError

TEMPLATE = 9


def tokens(text: str) -> int:
    """A tokenizer for which words with a "y" are two tokens, and the opening three."""
    return sum(3 if word == OPENING else 1 + ("y" in word) for word in text.split())


async def count_text(text: str) -> int:
    return tokens(text)


async def count_prompt(text: str) -> int:
    return tokens(text) + TEMPLATE


def test_words_are_all_different() -> None:
    assert len(set(WORDS)) == len(WORDS) > 150


def test_prompts_are_exact_where_the_server_counts() -> None:
    sizer = asyncio.run(calibrate(count_prompt, count_text))
    assert sizer.words == tuple(word for word in WORDS if "y" not in word)
    make = PromptMaker(sizer, seed=1)
    for size in (14, 150, 4000):
        assert tokens(make.prompt(size)) + TEMPLATE == size
    prefix = make.prefix(1000)
    assert tokens(make.after(prefix, 50)) + TEMPLATE == 1050
    assert tokens(make.turn(30)) == 30


def test_prompts_are_about_right_by_usage_alone() -> None:
    sizer = asyncio.run(calibrate(count_prompt, None))
    assert 1 < sizer.tokens_per_word < 1.3
    make = PromptMaker(sizer, seed=1)
    assert tokens(make.prompt(1000)) + TEMPLATE == pytest.approx(1000, rel=0.03)


def test_prompts_differ_unless_the_seed_is_the_same() -> None:
    sizer = Sizer(WORDS, 10)
    first, again, other = (PromptMaker(sizer, seed) for seed in (1, 1, 2))
    prompts = [first.prompt(100) for _ in range(20)]
    assert prompts == [again.prompt(100) for _ in range(20)]
    assert len({prompt[:40] for prompt in prompts}) == 20
    assert other.prompt(100) not in prompts


def test_tails_differ_behind_the_same_prefix() -> None:
    make = PromptMaker(Sizer(WORDS, 10), seed=1)
    prefix = make.prefix(100)
    one, two = make.after(prefix, 10), make.after(prefix, 10)
    assert one != two
    assert one.split()[: len(prefix) + 1] == two.split()[: len(prefix) + 1] == [OPENING, *prefix]


def test_a_prompt_shorter_than_the_template_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"30 tokens.*adds 31"):
        PromptMaker(Sizer(WORDS, 31), seed=0).prompt(30)


def test_a_server_with_other_words_is_refused() -> None:
    async def letters(text: str) -> int:
        return len(text)

    with pytest.raises(ConfigError, match="one token"):
        asyncio.run(calibrate(count_prompt, letters))
