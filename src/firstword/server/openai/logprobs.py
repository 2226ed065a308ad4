"""Log probabilities of tokens in the shapes of the two completion APIs.

`logprob` is the model's: log softmax of its unaltered logits. What the sampling chain (bias,
penalties, temperature, top_k, top_p, grammar) made of it is `sampled_probability`. Not here: what
either number is (sampling.sampler).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from firstword.engine.outputs import TokenLogprob
from firstword.sampling.params import SamplingParams
from firstword.text.tokenizer import Tokenizer

LOWEST = -9999.0
"""Stands for a probability of 0, since JSON has no -infinity."""


class LogprobWriter:
    """Writes the log probabilities of one sample as its tokens come.

    Args:
        tokenizer: the model's.
        skip_special: control tokens add no text.
        keep_leading_space: the sample continues a raw prompt.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool, keep_leading_space: bool) -> None:
        self._tokenizer, self._skip_special = tokenizer, skip_special
        self._at_start = not keep_leading_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def chat(self, tokens: Iterable[TokenLogprob]) -> list[dict[str, object]]:
        """Entries of `logprobs.content`: one for each token, the end token included.

        The `bytes` of the entries join to the bytes of the generated text exactly, so those of a
        control token that is not in the text are empty; `token` is for display.
        """
        return [self._chat_entry(token) for token in tokens]

    def _chat_entry(self, token: TokenLogprob) -> dict[str, object]:
        at_start = self._at_start
        return {
            "token": self._tokenizer.token_text(token.token_id),
            "logprob": max(token.logprob, LOWEST),
            "bytes": list(self._next_bytes(token.token_id)),
            "sampled_probability": token.probability,
            "top_logprobs": [
                {
                    "token": self._tokenizer.token_text(candidate.token_id),
                    "logprob": max(candidate.logprob, LOWEST),
                    "bytes": list(self._bytes(candidate.token_id, at_start)),
                    "sampled_probability": candidate.probability,
                }
                for candidate in token.candidates
            ],
        }

    def completion(self, tokens: Iterable[TokenLogprob]) -> dict[str, list[object]]:
        """`logprobs` of a text completion: one entry for each token in every list."""
        names = (
            "tokens",
            "token_logprobs",
            "top_logprobs",
            "text_offset",
            "bytes",
            "sampled_probabilities",
        )
        lists: dict[str, list[object]] = {name: [] for name in names}
        for token in tokens:
            lists["text_offset"].append(self._offset)
            added = self._next_bytes(token.token_id)
            self._offset += len(self._decoder.decode(added))
            lists["tokens"].append(self._tokenizer.token_text(token.token_id))
            lists["token_logprobs"].append(max(token.logprob, LOWEST))
            lists["bytes"].append(list(added))
            lists["sampled_probabilities"].append(token.probability)
            lists["top_logprobs"].append(
                {
                    self._tokenizer.token_text(c.token_id): max(c.logprob, LOWEST)
                    for c in token.candidates
                }
            )
        return lists

    def _next_bytes(self, token_id: int) -> bytes:
        added = self._bytes(token_id, self._at_start)
        self._at_start = self._at_start and not added
        return added

    def _bytes(self, token_id: int, at_start: bool) -> bytes:
        added = self._tokenizer.token_bytes(token_id, skip_special=self._skip_special)
        return self._tokenizer.without_space_prefix(token_id, added) if at_start else added


def writers(
    tokenizer: Tokenizer, params: SamplingParams, count: int, *, is_raw: bool
) -> list[LogprobWriter]:
    """One writer for each choice, or none where no log probabilities were asked for.

    Args:
        tokenizer: the model's.
        params: in force.
        count: choices.
        is_raw: they continue raw prompts.
    """
    if params.logprobs is None:
        return []
    return [LogprobWriter(tokenizer, params.skip_special_tokens, is_raw) for _ in range(count)]
