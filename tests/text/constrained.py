"""Texts drawn from a compiled grammar, as a model that prefers nothing would write them."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from firstword.sampling.constraint import TokenConstraint
from firstword.text.grammar import GrammarCompiler
from firstword.text.tokenizer import Tokenizer
from tests.text.vocabularies import byte_level

_ENDINGS = (b'"', b"}", b"]", b",")


def tiny_tokenizer() -> Tokenizer:
    """Bytes, a few longer tokens, and <|im_end|> as the end."""
    merges = ["t r", "u e", "tr ue", '" :', '" ,', '{ "', "Ġ {"]
    return Tokenizer.from_gguf(byte_level(merges), "test.gguf")


def tiny_compiler() -> GrammarCompiler:
    """A compiler for `tiny_tokenizer`."""
    return GrammarCompiler(tiny_tokenizer())


def allowed_ids(mask: NDArray[np.uint32]) -> list[int]:
    """The token ids whose bits are set."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return [int(i) for i in np.flatnonzero(bits)]


def write(
    constraint: TokenConstraint, tokenizer: Tokenizer, rng: random.Random, limit: int = 1000
) -> str | None:
    """A random text of a grammar; None where it has not ended after `limit` tokens."""
    token_ids: list[int] = []
    while len(token_ids) < limit:
        ids = allowed_ids(constraint.mask())
        assert ids, "nothing may follow"
        endings = [i for i in ids if tokenizer.token_bytes(i) in _ENDINGS]
        ends = [i for i in ids if i in tokenizer.eos_ids]
        if ends and rng.random() < 0.6:
            token_id = ends[0]
        else:  # long texts are hurried to their end
            hurried = rng.random() < (0.2 if len(token_ids) < 100 else 0.9)
            token_id = rng.choice(endings if endings and hurried else ids)
        constraint.accept(token_id)
        if token_id not in tokenizer.eos_ids:
            token_ids.append(token_id)
        if constraint.is_done:
            return text_of(tokenizer, token_ids)
    return None


def text_of(tokenizer: Tokenizer, token_ids: Iterable[int]) -> str:
    """The text, which must be UTF-8."""
    return b"".join(map(tokenizer.token_bytes, token_ids)).decode()
