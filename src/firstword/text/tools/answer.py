"""A model's answer taken apart while it is written: reasoning, text, tool calls.

Not here: how each is recognised (reasoning, tools).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from firstword.text.pieces import ContentPiece, Piece
from firstword.text.reasoning import ReasoningFormat, ReasoningSplitter
from firstword.text.tools.spec import ToolFormat, ToolParser


class AnswerParser:
    """Takes one answer apart: reasoning first, then tool calls in what is left.

    The pieces, joined, do not depend on the chunks that the text comes in.

    Args:
        reasoning: how the model reasons; None leaves its marks in the content.
        inside_reasoning: the prompt has opened the reasoning
            (`ReasoningFormat.is_opened_by(prompt text)`).
        tools: how the model calls tools; None for an answer without any.
        names: of the tools that it may call.
        call_id: the id of the i-th call; None for "call_0", "call_1", ...
        parallel: more than one call may be made; else what follows the first is content.

    Attributes:
        num_reasoning_tokens: tokens pushed that belong to the reasoning, its marks included.
    """

    def __init__(
        self,
        *,
        reasoning: ReasoningFormat | None = None,
        inside_reasoning: bool = False,
        tools: ToolFormat | None = None,
        names: Collection[str] = (),
        call_id: Callable[[int], str] | None = None,
        parallel: bool = True,
    ) -> None:
        self._reasoning: ReasoningSplitter | None = None
        if reasoning is not None:
            self._reasoning = ReasoningSplitter(reasoning, inside=inside_reasoning)
        self._tools: ToolParser | None = None
        if tools is not None:
            self._tools = tools.parser(names, call_id or "call_{}".format, parallel=parallel)
        self._uncounted = 0
        self.num_reasoning_tokens = 0

    def push(self, text: str, num_tokens: int = 0) -> list[Piece]:
        """The pieces that are certain after this text.

        Args:
            text: the next part of the answer.
            num_tokens: how many tokens were produced since the last push.
        """
        if self._reasoning is None:
            return self._with_calls([ContentPiece(text)] if text else [])
        within = self._reasoning.is_open or self._reasoning.is_undecided
        pieces = self._reasoning.push(text)
        if within:
            self._uncounted += num_tokens
        if self._reasoning.has_begun:
            self.num_reasoning_tokens += self._uncounted
            self._uncounted = 0
        return self._with_calls(pieces)

    def finish(self) -> list[Piece]:
        """The pieces that were held back, once no more text comes."""
        held = self._reasoning.finish() if self._reasoning else []
        return self._with_calls(held) + (self._tools.finish() if self._tools else [])

    def _with_calls(self, pieces: list[Piece]) -> list[Piece]:
        if self._tools is None:
            return pieces
        result: list[Piece] = []
        for piece in pieces:
            result += self._tools.push(piece.text) if isinstance(piece, ContentPiece) else [piece]
        return result
