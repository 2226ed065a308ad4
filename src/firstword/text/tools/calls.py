"""Tool calls written as JSON within an answer, found while it is written.

Not here: what one call looks like inside (call_object), which marks a model writes (the formats).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from firstword.text.pieces import (
    ContentPiece,
    Piece,
    ToolArguments,
    ToolCallEnd,
    ToolCallStart,
    merged,
)
from firstword.text.tools.call_object import CallObject
from firstword.text.tools.json_scanner import JsonScanner

_SPACE = " \t\r\n"
_FENCE = "```"


@dataclass(frozen=True)
class CallSyntax:
    """Where calls may stand.

    Args:
        tags: what opens calls -> what closes them, "" for nothing; they may stand anywhere.
        fences: languages of fenced blocks that may hold calls, at the beginning of a line.
        bare: a call may stand without marks at the beginning of a line.
        separators: characters between bare calls, besides white space.
    """

    tags: Mapping[str, str] = field(default_factory=dict, hash=False)
    fences: tuple[str, ...] = ()
    bare: bool = False
    separators: str = ""

    def openers(self, line_start: bool) -> dict[str, str]:
        """What may open calls here -> what closes them; without the bare ones."""
        fences = {f"{_FENCE}{language}\n": _FENCE for language in self.fences}
        return {**self.tags, **fences} if line_start else dict(self.tags)


class CallParser:
    """Takes an answer apart into text and tool calls, the same whatever chunks it comes in.

    A call is a well-formed JSON object that names a known tool, where the syntax lets calls
    stand, alone or in an array of calls. All else is content, character by character. White
    space around calls and the marks of calls are layout and are left out.

    Args:
        syntax: the model's.
        names: the known tools.
        call_id: the id of the i-th call.
        parallel: more than one call may be made; else what follows the first is content.
    """

    def __init__(
        self,
        syntax: CallSyntax,
        names: Collection[str],
        call_id: Callable[[int], str],
        *,
        parallel: bool = True,
    ) -> None:
        self._names, self._call_id, self._parallel = frozenset(names), call_id, parallel
        self._bare, self._separators = syntax.bare, syntax.separators
        self._anywhere, self._at_line_start = syntax.openers(False), syntax.openers(True)
        self._state: Callable[[str], None] = self._text
        self._pieces: list[Piece] = []
        self._held = ""  # read, and neither content nor part of a call yet
        self._line_start = True
        self._after_call = False
        self._closer = ""
        self._num_calls = 0
        self._call: CallObject | None = None
        self._array: JsonScanner | None = None  # around the call; a call stands in it as a 0
        self._skipped = JsonScanner()

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain after this text."""
        for character in text:
            self._state(character)
        self._take_arguments()
        pieces, self._pieces = self._pieces, []
        return merged(pieces)

    def finish(self) -> list[Piece]:
        """What was held back, once no more text comes."""
        call = self._call
        if call is not None and call.has_begun and not call.has_all_arguments:
            self._take_arguments()
            self._pieces.append(ToolCallEnd(self._num_calls - 1, is_whole=False))
        is_layout = not self._held.strip(_SPACE + self._separators)
        if self._state == self._close or (self._after_call and is_layout):
            self._held = ""  # the mark that closes a call, perhaps cut off
        self._release()
        pieces, self._pieces = self._pieces, []
        return merged(pieces)

    def _text(self, character: str) -> None:
        """Outside calls: held is white space and what may become an opener."""
        self._held += character
        layout = _SPACE + (self._separators if self._after_call else "")
        while self._held:
            rest = self._held.lstrip(layout)
            space = self._held[: len(self._held) - len(rest)]
            line_start = self._after_call or self._line_start or "\n" in space
            openers = self._at_line_start if line_start else self._anywhere
            if rest in openers:
                self._closer = openers[rest]
                self._state = self._seek
                return
            if self._bare and line_start and rest and rest in "{[":
                self._held, self._closer = space, ""
                self._state = self._seek
                return self._seek(rest)
            if any(opener.startswith(rest) for opener in openers):
                return
            self._emit(space + rest[:1])
            self._held = rest[1:]
            layout = _SPACE

    def _seek(self, character: str) -> None:
        """Within marks or an array, before an object."""
        array = self._array
        if character == "{" and (array is None or array.expects in ("value", "first value")):
            self._call = CallObject(self._names)
            self._state = self._object
            return self._object(character)
        if array is None:
            if character not in _SPACE + "[":
                return self._give_up(character)
            if character == "[":
                self._array = JsonScanner()
                self._array.push("[")
            self._held += character
            return
        if not array.push(character):
            return self._give_up(character)
        self._held += character
        if array.is_closed:
            self._end_array()
        elif array.expects not in ("value", "first value", "comma"):
            self._skip_rest(array)

    def _end_array(self) -> None:
        self._array = None
        if self._after_call:
            self._end_calls()
        else:
            self._give_up("")

    def _object(self, character: str) -> None:
        """Within an object that is or may be a call."""
        call = self._call
        assert call is not None
        begun, complete = call.has_begun, call.has_all_arguments
        call.push(character)
        if call.is_broken:
            self._take_arguments()
            if begun and not complete:
                self._pieces.append(ToolCallEnd(self._num_calls - 1, is_whole=False))
            return self._give_up(character)
        self._held += character
        if call.is_no_call:
            if not call.is_closed:
                return self._skip_rest(call.scanner)
            self._release()
            return self._end_object()
        if call.has_begun and not begun:
            self._start(call)
        if call.has_begun and not complete:
            self._held = ""
        if call.has_all_arguments and not complete:
            self._take_arguments()
            self._pieces.append(ToolCallEnd(self._num_calls - 1))
        if call.is_closed:
            self._held = ""
            self._end_object()

    def _start(self, call: CallObject) -> None:
        assert call.name is not None
        index = self._num_calls
        self._num_calls += 1
        self._after_call = True
        self._pieces.append(ToolCallStart(index, self._call_id(index), call.name))
        if not self._parallel:
            self._names = frozenset()

    def _take_arguments(self) -> None:
        if self._call is not None and self._call.has_begun:
            text = self._call.take_arguments()
            if text:
                self._pieces.append(ToolArguments(self._num_calls - 1, text))

    def _end_object(self) -> None:
        call, self._call = self._call, None
        if self._array is not None:
            self._array.push("0")
            self._array.push(" ")
            self._state = self._seek
        elif call is not None and call.is_no_call:
            self._state = self._text
        else:
            self._end_calls()

    def _end_calls(self) -> None:
        self._held = ""
        self._state = self._close if self._closer else self._text

    def _close(self, character: str) -> None:
        """After calls within marks: what closes them, or one more."""
        if character == "{" and not self._held.strip(_SPACE):
            self._state = self._seek
            return self._seek(character)
        self._held += character
        rest = self._held.lstrip(_SPACE)
        if rest == self._closer:
            self._held = ""
            self._state = self._text
        elif not self._closer.startswith(rest):
            self._reread()

    def _reread(self) -> None:
        held, self._held = self._held, ""
        self._state = self._text
        for character in held:
            self._state(character)

    def _skip_rest(self, scanner: JsonScanner) -> None:
        """What is JSON but no call is content to its end, whatever it holds."""
        self._release()
        self._skipped = scanner
        self._state = self._skip

    def _skip(self, character: str) -> None:
        if not self._skipped.push(character):
            return self._give_up(character)
        self._emit(character)
        if self._skipped.is_closed:
            self._end_skipped()

    def _end_skipped(self) -> None:
        if self._call is not None and self._array is not None:
            self._end_object()
        else:
            self._call = self._array = None
            self._state = self._text

    def _give_up(self, character: str) -> None:
        """What was held is content; the character that showed it is read as text."""
        self._release()
        self._call = self._array = None
        self._state = self._text
        if character:
            self._text(character)

    def _release(self) -> None:
        self._emit(self._held)
        self._held = ""

    def _emit(self, text: str) -> None:
        if not text:
            return
        self._pieces.append(ContentPiece(text))
        self._after_call = False
        last_line = text.rpartition("\n")
        at_line_start = self._line_start or bool(last_line[1])
        self._line_start = at_line_start and not last_line[2].strip()
