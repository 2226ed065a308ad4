"""Tools: how models are told of them and how they call them, one format per file."""

from firstword.text.pieces import (
    ContentPiece,
    Piece,
    ReasoningPiece,
    ToolArguments,
    ToolCallEnd,
    ToolCallStart,
    merged,
)
from firstword.text.tools.answer import AnswerParser
from firstword.text.tools.registry import tool_format
from firstword.text.tools.spec import (
    NamedTool,
    ToolChoice,
    ToolFormat,
    ToolParser,
    ToolSpec,
)

__all__ = [
    "AnswerParser",
    "ContentPiece",
    "NamedTool",
    "Piece",
    "ReasoningPiece",
    "ToolArguments",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolChoice",
    "ToolFormat",
    "ToolParser",
    "ToolSpec",
    "merged",
    "tool_format",
]
