"""Token ids to text one at a time, in whole characters.

Not here: where the text stops (stop).
"""

from __future__ import annotations

import codecs

from firstword.text.tokenizer import Tokenizer


class Detokenizer:
    """Holds back the bytes of a character until its last one has come.

    For any ids, the pushed texts and the flushed one join to `tokenizer.decode(ids)` exactly.

    Args:
        tokenizer: whose tokens come in.
        skip_special: as in `Tokenizer.decode`: control tokens add nothing.
        keep_leading_space: as in `Tokenizer.decode`: the text continues another one.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special: bool = True,
        keep_leading_space: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._at_start = not keep_leading_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that is certain now, perhaps empty.

        Raises:
            ConfigError: the id is out of range.
        """
        piece = self._tokenizer.token_bytes(token_id, skip_special=self._skip_special)
        if self._at_start and piece:
            piece = self._tokenizer.without_space_prefix(token_id, piece)
            self._at_start = False
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """The rest: U+FFFD for a character that was never completed."""
        return self._decoder.decode(b"", final=True)
