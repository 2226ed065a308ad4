"""A byte-level BPE vocabulary of any size, for models whose answers nobody reads.

Every text can be encoded and every token can be reached by merges. The metadata is what a GGUF
file says of its tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

NORMAL, CONTROL = 1, 3
"""Types of tokens, as ggml numbers them."""

_LETTERS = "etaoinshrdlucmfwygpbvkxqjz"
_SPACE = "Ġ"  # how byte-level vocabularies write the space in front of a word
_NAMED_CONTROLS = ("<|begin_of_text|>", "<|end_of_text|>")
_LAST_NAMED_CONTROL = "<|eot_id|>"

MetadataValue = str | int | bool | Sequence[str] | Sequence[int]


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer in a GGUF file's words.

    Args:
        size: tokens.
        metadata: keys that begin with "tokenizer.ggml.", and their values.
    """

    size: int
    metadata: Mapping[str, object]


def byte_level(size: int, num_controls: int = 256) -> Vocabulary:
    """Make a vocabulary in the form of Llama 3's: bytes, merges, then control tokens.

    Args:
        size: tokens in all, at least 256 bytes and the controls.
        num_controls: control tokens at the end, at least 3.

    Raises:
        ValueError: the size is too small.
    """
    num_merges = size - 256 - num_controls
    if num_controls < 3 or num_merges < 0:
        raise ValueError(f"{size} tokens cannot hold 256 bytes and {num_controls} controls")
    merges = _merges(num_merges)
    controls = _controls(num_controls)
    tokens = [*byte_alphabet(), *(left + right for left, right in merges), *controls]
    first_control = size - num_controls
    return Vocabulary(
        size,
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "llama-bpe",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [NORMAL] * first_control + [CONTROL] * num_controls,
            "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
            "tokenizer.ggml.bos_token_id": first_control,
            "tokenizer.ggml.eos_token_id": size - 1,
            "tokenizer.ggml.add_bos_token": True,
        },
    )


def byte_alphabet() -> list[str]:
    """The character that stands for each byte: itself where it can be printed (GPT-2's table)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _merges(count: int) -> list[tuple[str, str]]:
    """The first `count` merges: words grow letter by letter, the short ones first."""
    return [pair for pair, _ in zip(_all_merges(), range(count), strict=False)]


def _all_merges() -> Iterator[tuple[str, str]]:
    words = [_SPACE, *_LETTERS]
    while True:
        longer = []
        for word in words:
            for letter in _LETTERS:
                yield word, letter
                longer.append(word + letter)
        words = longer


def _controls(count: int) -> list[str]:
    reserved = count - len(_NAMED_CONTROLS) - 1
    names = (f"<|reserved_special_token_{i}|>" for i in range(reserved))
    return [*_NAMED_CONTROLS, *names, _LAST_NAMED_CONTROL]
