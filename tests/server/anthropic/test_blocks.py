from __future__ import annotations

from firstword.server.anthropic.blocks import (
    BlockDelta,
    BlockEnd,
    BlockEvent,
    BlockSplitter,
    BlockStart,
)
from firstword.text.pieces import (
    ContentPiece,
    Piece,
    ReasoningPiece,
    ToolArguments,
    ToolCallEnd,
    ToolCallStart,
)

CALL: list[Piece] = [ToolCallStart(0, "c1", "f"), ToolArguments(0, "{}"), ToolCallEnd(0)]
CALL_BLOCK = [BlockStart(0, "tool_use", "c1", "f"), BlockDelta(0, "tool_use", "{}"), BlockEnd(0)]


def split(*pieces: Piece, parallel_calls: bool = True) -> list[BlockEvent]:
    splitter = BlockSplitter(parallel_calls)
    events = [event for piece in pieces for event in splitter.push(piece)]
    return [*events, *splitter.finish()]


def test_text_is_one_block() -> None:
    assert split(ContentPiece("a"), ContentPiece("b")) == [
        BlockStart(0, "text"),
        BlockDelta(0, "text", "a"),
        BlockDelta(0, "text", "b"),
        BlockEnd(0),
    ]


def test_nothing_is_no_block() -> None:
    assert split() == []


def test_reasoning_text_and_calls_are_blocks_in_order() -> None:
    second: list[Piece] = [ToolCallStart(1, "c2", "g"), ToolArguments(1, "{}"), ToolCallEnd(1)]
    events = split(ReasoningPiece("hm"), ContentPiece("so"), *CALL, *second)
    starts = [event for event in events if isinstance(event, BlockStart)]
    assert [(start.index, start.kind) for start in starts] == [
        (0, "thinking"),
        (1, "text"),
        (2, "tool_use"),
        (3, "tool_use"),
    ]
    assert [event.index for event in events if isinstance(event, BlockEnd)] == [0, 1, 2, 3]
    open_block = None
    for event in events:  # one block at a time
        if isinstance(event, BlockStart):
            assert open_block is None
            open_block = event.index
        elif isinstance(event, BlockEnd):
            assert open_block == event.index
            open_block = None
        else:
            assert open_block == event.index


def test_white_space_alone_is_no_block() -> None:
    assert split(ContentPiece("\n"), ContentPiece("\n"), *CALL, ContentPiece("\n")) == CALL_BLOCK


def test_white_space_before_text_is_kept() -> None:
    events = split(ReasoningPiece("hm"), ContentPiece("\n"), ContentPiece("\n"), ContentPiece("a"))
    assert BlockDelta(1, "text", "\n\na") in events


def test_white_space_within_text_is_kept_as_it_comes() -> None:
    assert BlockDelta(0, "text", "\n") in split(ContentPiece("a"), ContentPiece("\n"))


def test_calls_after_the_first_are_left_out_where_one_is_wanted() -> None:
    second: list[Piece] = [ToolCallStart(1, "c2", "g"), ToolArguments(1, "{}"), ToolCallEnd(1)]
    assert split(*CALL, *second, parallel_calls=False) == CALL_BLOCK
