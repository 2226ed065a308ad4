"""A JSON object or array read character by character, strictly as RFC 8259 has it.

Not here: what the values mean (call_object); values themselves (the json module).
"""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_DEPTH = 200
"""Objects and arrays within each other; readers of JSON give up at some depth, too."""

_SPACE = " \t\n\r"
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_LITERALS = {"t": "true", "f": "false", "n": "null"}


class JsonScanner:
    """Says of each character whether the text is still the beginning of a JSON object or array.

    Attributes:
        depth: objects and arrays that are open.
        expects: what may come next: "value", "key", "colon", "comma", or a part of a string,
            number or literal; "nothing" once the outermost is closed.
    """

    def __init__(self) -> None:
        self._closers: list[str] = []
        self._after_string = "comma"
        self._word = ""
        self._hex_left = 0
        self.expects = "value"

    @property
    def depth(self) -> int:
        """Objects and arrays that are open."""
        return len(self._closers)

    @property
    def is_closed(self) -> bool:
        """Whether the outermost object or array is complete."""
        return self.expects == "nothing"

    def push(self, character: str) -> bool:
        """Take one more character; False if no JSON goes on so."""
        return _RULES[self.expects](self, character)

    def _value(self, character: str) -> bool:
        if character in _SPACE:
            return True
        if character in "{[":
            return self._open(character)
        if not self._closers:
            return False
        if character == '"':
            self.expects, self._after_string = "string", "comma"
        elif character in _LITERALS:
            self.expects, self._word = "literal", character
        elif character in "-0123456789":
            self.expects, self._word = "number", character
        else:
            return False
        return True

    def _open(self, character: str) -> bool:
        if len(self._closers) >= MAX_DEPTH:
            return False
        self._closers.append("}" if character == "{" else "]")
        self.expects = "first key" if character == "{" else "first value"
        return True

    def _close(self) -> bool:
        self._closers.pop()
        self.expects = "comma" if self._closers else "nothing"
        return True

    def _first_value(self, character: str) -> bool:
        return self._close() if character == "]" else self._value(character)

    def _first_key(self, character: str) -> bool:
        return self._close() if character == "}" else self._key(character)

    def _key(self, character: str) -> bool:
        if character == '"':
            self.expects, self._after_string = "string", "colon"
            return True
        return character in _SPACE

    def _colon(self, character: str) -> bool:
        if character == ":":
            self.expects = "value"
            return True
        return character in _SPACE

    def _comma(self, character: str) -> bool:
        if character == ",":
            self.expects = "key" if self._closers[-1] == "}" else "value"
            return True
        return self._close() if character == self._closers[-1] else character in _SPACE

    def _string(self, character: str) -> bool:
        if character == '"':
            self.expects = self._after_string
        elif character == "\\":
            self.expects = "escape"
        return character >= " "

    def _escape(self, character: str) -> bool:
        if character == "u":
            self.expects, self._hex_left = "hex digit", 4
            return True
        self.expects = "string"
        return character in '"\\/bfnrt'

    def _hex_digit(self, character: str) -> bool:
        self._hex_left -= 1
        if not self._hex_left:
            self.expects = "string"
        return character in "0123456789abcdefABCDEF"

    def _literal(self, character: str) -> bool:
        self._word += character
        whole = _LITERALS[self._word[0]]
        if self._word == whole:
            self.expects = "comma"
        return whole.startswith(self._word)

    def _number(self, character: str) -> bool:
        if character in "0123456789+-.eE":
            self._word += character
            return True
        self.expects = "comma"
        return _NUMBER.fullmatch(self._word) is not None and self._comma(character)

    def _nothing(self, character: str) -> bool:
        return False


_RULES: dict[str, Callable[[JsonScanner, str], bool]] = {
    "value": JsonScanner._value,
    "first value": JsonScanner._first_value,
    "first key": JsonScanner._first_key,
    "key": JsonScanner._key,
    "colon": JsonScanner._colon,
    "comma": JsonScanner._comma,
    "string": JsonScanner._string,
    "escape": JsonScanner._escape,
    "hex digit": JsonScanner._hex_digit,
    "literal": JsonScanner._literal,
    "number": JsonScanner._number,
    "nothing": JsonScanner._nothing,
}
