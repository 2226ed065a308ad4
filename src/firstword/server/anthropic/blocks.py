"""Pieces of an answer become content blocks: which begins, grows and ends when.

Not here: how blocks are written, as events (stream) or as a whole message (message).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from firstword.text.pieces import (
    ContentPiece,
    Piece,
    ReasoningPiece,
    ToolArguments,
    ToolCallStart,
)

BlockKind = Literal["text", "thinking", "tool_use"]


@dataclass(frozen=True)
class BlockStart:
    """A block begins.

    Args:
        index: of the block in the message, from 0.
        kind: its type.
        call_id: of a tool_use, its id.
        name: of a tool_use, the tool.
    """

    index: int
    kind: BlockKind
    call_id: str = ""
    name: str = ""


@dataclass(frozen=True)
class BlockDelta:
    """A block grows by `text`: of a tool_use, JSON of its input."""

    index: int
    kind: BlockKind
    text: str


@dataclass(frozen=True)
class BlockEnd:
    """A block has ended."""

    index: int


BlockEvent = BlockStart | BlockDelta | BlockEnd


class BlockSplitter:
    """The blocks of one answer, as its pieces come.

    White space that stands alone between two blocks, as models put it before a call, makes no
    block: clients may not send such a block back.

    Args:
        parallel_calls: take more than one call; else those after the first are left out.
    """

    def __init__(self, parallel_calls: bool = True) -> None:
        self._parallel_calls = parallel_calls
        self._index = -1
        self._open: BlockKind | None = None
        self._space = ""
        self._num_calls = 0

    def push(self, piece: Piece) -> Iterator[BlockEvent]:
        """What a piece begins, adds and ends."""
        if isinstance(piece, ContentPiece):
            yield from self._text("text", piece.text)
        elif isinstance(piece, ReasoningPiece):
            yield from self._text("thinking", piece.text)
        elif isinstance(piece, ToolCallStart):
            self._num_calls += 1
            if self._takes_call:
                yield from self._begin("tool_use", piece.call_id, piece.name)
        elif isinstance(piece, ToolArguments) and self._takes_call:
            yield BlockDelta(self._index, "tool_use", piece.text)

    def finish(self) -> Iterator[BlockEvent]:
        """End the block that is open."""
        self._space = ""
        if self._open is not None:
            self._open = None
            yield BlockEnd(self._index)

    @property
    def _takes_call(self) -> bool:
        return self._parallel_calls or self._num_calls == 1

    def _text(self, kind: BlockKind, text: str) -> Iterator[BlockEvent]:
        if self._open != kind:
            text = self._space + text if kind == "text" else text
            if not text.strip():
                yield from self.finish()
                self._space = text if kind == "text" else ""
                return
            yield from self._begin(kind)
        if text:
            yield BlockDelta(self._index, kind, text)

    def _begin(self, kind: BlockKind, call_id: str = "", name: str = "") -> Iterator[BlockEvent]:
        yield from self.finish()
        self._index += 1
        self._open = kind
        yield BlockStart(self._index, kind, call_id, name)
