"""One tool call as a JSON object, {"name": ..., "arguments": {...}}, read as it is written.

Not here: the marks around calls and the text between them (calls).
"""

from __future__ import annotations

import json
from collections.abc import Collection

from firstword.text.tools.json_scanner import JsonScanner

_ARGUMENTS = ("arguments", "parameters")
"""Models mix up the two words, whichever they were trained on."""
_IGNORED = ("type", "id")


class CallObject:
    """Reads an object and says, as soon as it is certain, whether it is a call of a known tool.

    A call has a name and an object of arguments (none means an empty one), and nothing else
    but a type and an id.

    Args:
        names: the known tools.

    Attributes:
        scanner: of the object's characters.
        name: of the tool, once it is known to be one.
        has_begun: it is a call: from here on arguments are certain as they come.
        is_no_call: it may be JSON, but is no call of a known tool.
        is_broken: it is no JSON; the last character pushed was not taken.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self.scanner = JsonScanner()
        self._characters: list[str] = []
        self._string_at = 0
        self._key = ""
        self._arguments_at: int | None = None
        self._arguments_end: int | None = None
        self._taken = 0
        self.name: str | None = None
        self.has_begun = self.is_no_call = self.is_broken = False

    @property
    def is_closed(self) -> bool:
        """Whether the object is complete."""
        return self.scanner.is_closed

    @property
    def has_all_arguments(self) -> bool:
        """Whether the arguments are complete."""
        return self.has_begun and (self._arguments_end is not None or self.is_closed)

    def push(self, character: str) -> None:
        """Take one more character; none after `is_closed` or `is_broken`."""
        before, depth = self.scanner.expects, self.scanner.depth
        if not self.scanner.push(character):
            self.is_broken = True
            return
        self._characters.append(character)
        if not self.has_all_arguments and not self.is_no_call:
            self._look(before, depth, character)

    def take_arguments(self) -> str:
        """The text of the arguments since the last time; only of a call that has begun."""
        if self._arguments_at is None:
            self._arguments_at = self._arguments_end = self._taken = 0
            return "{}"
        end = len(self._characters) if self._arguments_end is None else self._arguments_end
        taken = "".join(self._characters[self._taken : end])
        self._taken = end
        return taken

    def _look(self, before: str, depth: int, character: str) -> None:
        """What the last character says of the outermost object's keys and values."""
        now = self.scanner.expects
        if now != before and depth == 1:
            if now == "string" and before != "escape" and before != "hex digit":
                self._string_at = len(self._characters) - 1
            elif now == "colon":
                self._read_key()
        if depth == 1 and before == "value" and now != "value":
            self._begin_value(character)
        elif self.scanner.depth == 1 and now == "comma" and (depth, before) != (1, "comma"):
            self._end_value()
        elif self.is_closed:
            self._end_object()
        self.has_begun = (
            self.name is not None
            and (self._arguments_at is not None or self.is_closed)
            and not self.is_no_call
        )

    def _read_key(self) -> None:
        self._key = self._last_string()
        repeated = self._key == "name" and self.name is not None
        arguments = self._key in _ARGUMENTS and self._arguments_at is not None
        known = self._key == "name" or self._key in _ARGUMENTS or self._key in _IGNORED
        self.is_no_call = not known or repeated or arguments

    def _begin_value(self, character: str) -> None:
        if self._key in _ARGUMENTS:
            self.is_no_call = character != "{"
            self._arguments_at = self._taken = len(self._characters) - 1
        elif self._key == "name":
            self.is_no_call = character != '"'

    def _end_value(self) -> None:
        if self._key == "name":
            name = self._last_string()
            self.is_no_call = name not in self._names
            self.name = name
        elif self._key in _ARGUMENTS:
            self._arguments_end = len(self._characters)

    def _end_object(self) -> None:
        self.is_no_call = self.name is None

    def _last_string(self) -> str:
        return str(json.loads("".join(self._characters[self._string_at :])))
