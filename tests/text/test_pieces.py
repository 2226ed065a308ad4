from __future__ import annotations

from firstword.text.pieces import (
    ContentPiece,
    ReasoningPiece,
    ToolArguments,
    ToolCallEnd,
    ToolCallStart,
    merged,
)


def test_neighbours_of_one_text_are_joined() -> None:
    start, end = ToolCallStart(0, "c", "f"), ToolCallEnd(0)
    assert merged(
        [
            ReasoningPiece("a"),
            ReasoningPiece("b"),
            ContentPiece("c"),
            ContentPiece("d"),
            start,
            ToolArguments(0, "{"),
            ToolArguments(0, "}"),
            end,
            ToolArguments(1, "{"),
        ]
    ) == [
        ReasoningPiece("ab"),
        ContentPiece("cd"),
        start,
        ToolArguments(0, "{}"),
        end,
        ToolArguments(1, "{"),
    ]
    assert merged([]) == []
