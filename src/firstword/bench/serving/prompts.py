"""Prompts of a wanted number of tokens, made of common words; not how they are sent.

A word that is one token by itself adds exactly one token to a prompt, whatever stands beside it,
because tokenizers cut between words. So the words that are one token are found once, by asking
the server, and a prompt is then as long as the number of its words, plus what the chat template
adds to every prompt.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from firstword.errors import ConfigError

Count = Callable[[str], Awaitable[int]]
"""The number of tokens of a prompt, asked of a server."""

OPENING = "Words:"
"""Every prompt begins so: a first word costs other tokens, and this one's are in `overhead`."""

WORDS = tuple(
    """
    time year people way day man thing woman life child world school state family student group
    country problem hand part place case week company system program question work government
    number night point home water room mother area money story fact month lot right study book eye
    job word business issue side kind head house service friend father power hour game line end
    member law car city community name president team minute idea body information back parent
    face others level office door health person art war history party result change morning reason
    research girl guy moment air teacher force education foot boy age policy music market sense
    nation plan college interest death experience effect use class control field development role
    effort rate heart drug show leader light voice wife police mind price report decision son view
    relationship town road arm difference value building action season society tax director
    position player record paper space ground form event matter center couple site project star
    table need court oil situation cost industry figure street image phone data picture practice
    piece land product doctor wall patient worker news test movie north love support technology
    """.split()
)


@dataclass(frozen=True)
class Sizer:
    """How words become tokens at one server.

    Args:
        words: to make prompts of.
        overhead: tokens of a prompt without any word: template and opening.
        tokens_per_word: 1 where all words are one token.
    """

    words: tuple[str, ...]
    overhead: float
    tokens_per_word: float = 1.0

    def num_words(self, num_tokens: int) -> int:
        """Words of a prompt of so many tokens.

        Raises:
            ConfigError: the template alone has more.
        """
        count = round((num_tokens - self.overhead) / self.tokens_per_word)
        if count < 1:
            raise ConfigError(
                f"a prompt of {num_tokens} tokens is asked for, but the server's chat template "
                f"adds {self.overhead:.0f} to every one: ask for more than that"
            )
        return count

    def additional_words(self, num_tokens: int) -> int:
        """Words that add so many tokens to a prompt that has some; at least 1."""
        return max(1, round(num_tokens / self.tokens_per_word))


class PromptMaker:
    """Makes prompts that differ from their first words on.

    Args:
        sizer: of the server.
        seed: the same one gives the same prompts.
    """

    def __init__(self, sizer: Sizer, seed: int) -> None:
        self._sizer = sizer
        self._random = random.Random(seed)

    def prompt(self, num_tokens: int) -> str:
        """A new prompt of so many tokens, template included."""
        return self._text(self._draw(self._sizer.num_words(num_tokens)))

    def prefix(self, num_tokens: int) -> tuple[str, ...]:
        """Words that, with the template and the opening before them, are so many tokens."""
        return self._draw(self._sizer.num_words(num_tokens))

    def after(self, prefix: tuple[str, ...], num_tokens: int) -> str:
        """A prompt that begins with a prefix and has so many further tokens, new ones."""
        return self._text(prefix + self._draw(self._sizer.additional_words(num_tokens)))

    def turn(self, num_tokens: int) -> str:
        """What a user says next in a conversation: so many tokens, besides the template's."""
        return " ".join(self._draw(self._sizer.additional_words(num_tokens)))

    def _draw(self, count: int) -> tuple[str, ...]:
        return tuple(self._random.choices(self._sizer.words, k=count))

    @staticmethod
    def _text(words: Sequence[str]) -> str:
        return " ".join((OPENING, *words))


async def calibrate(count_prompt: Count, count_text: Count | None) -> Sizer:
    """Learn how words become tokens.

    Args:
        count_prompt: tokens of a chat whose only message is the text, template included.
        count_text: tokens of the text alone, where the server counts for nothing; None where it
            does not, and an average over the words must do.

    Returns:
        The sizer: exact with `count_text`, and without it if all words are one token.
    """
    words = WORDS
    if count_text is not None:
        words = await _single_tokens(count_text)
    one = await count_prompt(f"{OPENING} {words[0]}")
    slope = 1.0
    if count_text is None:
        all_words = await count_prompt(" ".join((OPENING, *words)))
        slope = (all_words - one) / (len(words) - 1)
    return Sizer(words, one - slope, slope)


async def _single_tokens(count: Count) -> tuple[str, ...]:
    """The words that are one token each; all of them where hardly any is."""
    opening = await count(OPENING)

    async def keep(words: tuple[str, ...]) -> tuple[str, ...]:
        if await count(" ".join((OPENING, *words))) == opening + len(words):
            return words
        if len(words) == 1:
            return ()
        half = len(words) // 2
        return await keep(words[:half]) + await keep(words[half:])

    kept = await keep(WORDS)
    if len(kept) < len(WORDS) // 8:
        raise ConfigError(
            f"only {len(kept)} of {len(WORDS)} common English words are one token to this "
            "server: prompts of a given length cannot be made for it"
        )
    return kept
