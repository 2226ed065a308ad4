"""Whether a grammar takes a text, by the library that enforces grammars."""

from __future__ import annotations

from collections.abc import Sequence

import llguidance


class _Bytes:
    """A vocabulary of bytes, an end token and control tokens."""

    eos_token_id = 256
    bos_token_id = None

    def __init__(self, controls: Sequence[str]) -> None:
        self.controls = {text: 257 + i for i, text in enumerate(controls)}
        self.tokens = [*(bytes([i]) for i in range(256)), b"<|end|>"]
        self.tokens += [text.encode() for text in controls]
        self.special_token_ids = list(range(256, len(self.tokens)))

    def __call__(self, text: bytes) -> list[int]:
        return list(text)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        while text:
            control = next((c for c in self.controls if text.startswith(c)), None)
            ids += [self.controls[control]] if control else text[0].encode()
            text = text[len(control or text[0]) :]
        return ids


def accepts(lark: str, text: str, controls: Sequence[str] = ()) -> bool:
    """Whether a whole text fits a Lark grammar.

    Args:
        lark: the grammar; a wrong one fails the test.
        text: what a model would write.
        controls: strings of the text that are control tokens.
    """
    vocabulary = _Bytes(controls)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary))
    matcher = llguidance.LLMatcher(tokenizer, lark, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return all(map(matcher.consume_token, vocabulary.encode(text))) and matcher.is_accepting()
