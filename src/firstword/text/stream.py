"""Token ids to the text a user sees: whole characters, cut before a stop string.

Not here: the protocol that carries the text (server, command line).
"""

from __future__ import annotations

from collections.abc import Sequence

from firstword.text.detokenizer import Detokenizer
from firstword.text.stop import StopStrings
from firstword.text.tokenizer import Tokenizer


class TextStream:
    """The text of one sequence as its tokens come; streamed and whole answers both use it.

    Every returned text is valid UTF-8 in whole characters. Joined they are the answer.

    Args:
        tokenizer: whose tokens come in.
        stops: stop strings, see StopStrings.
        skip_special: control tokens add no text.
        keep_leading_space: the text continues a raw prompt, so a first space is text.

    Raises:
        ConfigError: a stop string is empty.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: Sequence[str] = (),
        *,
        skip_special: bool = True,
        keep_leading_space: bool = False,
    ) -> None:
        self._detokenizer = Detokenizer(
            tokenizer, skip_special=skip_special, keep_leading_space=keep_leading_space
        )
        self._stops = StopStrings(stops)

    @property
    def stop_reason(self) -> str | None:
        """The stop string that was found, None until then."""
        return self._stops.matched

    def push(self, token_id: int) -> str:
        """The text to emit after one more token; none after a stop string.

        Raises:
            ConfigError: the id is out of range.
        """
        return self._stops.push(self._detokenizer.push(token_id))

    def finish(self) -> str:
        """The rest of the text, once no more tokens come."""
        return self._stops.push(self._detokenizer.flush()) + self._stops.flush()
