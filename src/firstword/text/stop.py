"""Stop strings: where generated text ends, whatever pieces it comes in.

Not here: stop token ids, which the engine sees without text.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstword.errors import ConfigError


class StopStrings:
    """Passes text on until a stop string appears; the text ends before that string.

    The stop string that is complete first wins; of several complete at the same character, the
    longest. This depends on the text alone, not on the pieces it is pushed in. Held back is only
    what may still become a stop string: the longest end of the text that begins one.

    Args:
        stops: the stop strings; none means that all text passes.

    Attributes:
        matched: the stop string that was found, None until then.

    Raises:
        ConfigError: a stop string is empty or holds a lone surrogate.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        for index, stop in enumerate(stops):
            if not stop:
                raise ConfigError(f"stop string {index} is empty: it must hold a character")
            if any("\ud800" <= character <= "\udfff" for character in stop):
                raise ConfigError(f"stop string {index} holds a lone surrogate: it cannot appear")
        self._stops = tuple(dict.fromkeys(stops))
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that is safe to emit now; none after a match."""
        if self.matched is not None:
            return ""
        text = self._held + text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            self._held = ""
            return text[:at]
        safe = len(text) - self._num_held(text)
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held

    def _num_held(self, text: str) -> int:
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
