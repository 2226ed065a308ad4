"""The pieces of an answer in the order they were written: text, reasoning, tool calls.

Not here: how they are told apart (answer, reasoning, tools).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContentPiece:
    """Text of the answer itself; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """Text that the model wrote to itself before the answer; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """A call of a known tool begins; at least one ToolArguments and one ToolCallEnd follow.

    Args:
        index: of the call in its answer, counted from 0.
        call_id: what the tool's result will refer to.
        name: of the tool.
    """

    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """Part of a call's arguments: JSON text exactly as the model wrote it; never empty."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """A call ends.

    Args:
        index: of the call.
        is_whole: its arguments are one JSON object; False when the answer was cut off within
            them or the model broke its JSON: they are then the beginning of one.
    """

    index: int
    is_whole: bool = True


Piece = ContentPiece | ReasoningPiece | ToolCallStart | ToolArguments | ToolCallEnd


def merged(pieces: list[Piece]) -> list[Piece]:
    """The pieces with neighbours of the same text joined: what does not depend on chunking."""
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        match piece, last:
            case ContentPiece(text), ContentPiece(before):
                result[-1] = ContentPiece(before + text)
            case ReasoningPiece(text), ReasoningPiece(before):
                result[-1] = ReasoningPiece(before + text)
            case ToolArguments(index, text), ToolArguments(same, before) if index == same:
                result[-1] = ToolArguments(index, before + text)
            case _:
                result.append(piece)
    return result
