"""Reasoning that a model writes before its answer, told apart from it.

Not here: tool calls (tools), both together (answer).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firstword.text.pieces import ContentPiece, Piece, ReasoningPiece

_KINDS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))


@dataclass(frozen=True)
class ReasoningFormat:
    """The marks around a model's reasoning.

    Args:
        start: what opens it, e.g. "<think>".
        end: what closes it.
        needs_special: the marks are control tokens: text must be made with
            skip_special_tokens=False.
    """

    start: str
    end: str
    needs_special: bool = False

    def is_opened_by(self, prompt: str) -> bool:
        """Whether a prompt's text ends within reasoning, so that the answer begins there."""
        return prompt.rstrip().endswith(self.start)

    def in_grammar(self, grammar: str, *, inside: bool = False) -> str:
        """A Lark grammar with room for reasoning before it.

        Args:
            grammar: in llguidance's dialect; its first rule is called start, and no rule
                thought, thoughts or gap.
            inside: the prompt has opened the reasoning already, so that it must be closed.
        """
        after = grammar.removeprefix("start:")
        start = "" if inside else self._mark(self.start)
        if self.needs_special:
            rules = [f"thought: {start} /(.|\\n)*/ {self._mark(self.end)}"]
        else:
            end = "".join(f"\\{c}" if c in "/[]" else c for c in self.end)
            rules = [f"thought: {start} thoughts", f"thoughts[lazy]: /(.|\\n)*{end}/"]
        optional = "" if inside else "?"
        first = f"start: (thought gap){optional} answer\nanswer:{after}"
        return first + "\n".join([*rules, "gap: /\\n{0,2}/"]) + "\n"

    def _mark(self, mark: str) -> str:
        return mark if self.needs_special else f'"{mark}"'


def reasoning_format(
    template_source: str | None, is_control: Callable[[str], bool] | None = None
) -> ReasoningFormat | None:
    """The kind of reasoning that a chat template speaks of, None for none.

    Args:
        template_source: the Jinja2 source; None for a model without a template.
        is_control: whether a string is a control token of the vocabulary.
    """
    for start, end in _KINDS:
        if template_source is not None and start in template_source and end in template_source:
            return ReasoningFormat(start, end, is_control is not None and is_control(start))
    return None


class ReasoningSplitter:
    """Splits one answer into its reasoning and the rest, whatever chunks it comes in.

    Reasoning stands at the beginning of an answer only. White space just inside and after its
    marks is layout and is left out.

    Args:
        marks: the model's format.
        inside: the prompt has opened the reasoning already.

    Attributes:
        is_open: the answer is within its reasoning now.
        is_undecided: it is not yet known whether the answer begins with reasoning.
        has_begun: the answer has reasoning, finished or not.
    """

    def __init__(self, marks: ReasoningFormat, *, inside: bool = False) -> None:
        self._marks = marks
        self.is_open = inside
        self.is_undecided = not inside
        self.has_begun = inside
        self._held = ""
        self._trims = inside  # white space at the beginning of what comes next is layout

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain after this text."""
        self._held += text
        if self.is_undecided:
            self._decide()
        pieces: list[Piece] = []
        if self.is_open:
            pieces += self._reasoning()
        if not self.is_open and not self.is_undecided:
            pieces += self._content()
        return pieces

    def finish(self) -> list[Piece]:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        if not held or (self._trims and held.isspace()):
            return []
        return [ReasoningPiece(held) if self.is_open else ContentPiece(held)]

    def _decide(self) -> None:
        """Whether the answer begins with reasoning, as soon as its first characters tell."""
        begun = self._held.lstrip()
        if begun.startswith(self._marks.start):
            self._held = begun[len(self._marks.start) :]
            self.is_open = self.has_begun = self._trims = True
        self.is_undecided = not self.is_open and self._marks.start.startswith(begun)

    def _reasoning(self) -> list[Piece]:
        self._trim()
        thought, mark, after = self._held.partition(self._marks.end)
        if mark:
            self.is_open, self._held, self._trims = False, after, True
            return [ReasoningPiece(thought.rstrip())] if thought.strip() else []
        safe = len(self._held) - self._num_held()
        emitted, self._held = self._held[:safe], self._held[safe:]
        return [ReasoningPiece(emitted)] if emitted else []

    def _num_held(self) -> int:
        """Characters at the end that may become the closing mark, and white space before it."""
        end = self._marks.end
        longest = min(len(end) - 1, len(self._held))
        part = next((n for n in range(longest, 0, -1) if self._held.endswith(end[:n])), 0)
        return len(self._held) - len(self._held[: len(self._held) - part].rstrip())

    def _content(self) -> list[Piece]:
        self._trim()
        text, self._held = self._held, ""
        return [ContentPiece(text)] if text else []

    def _trim(self) -> None:
        if self._trims:
            self._held = self._held.lstrip()
            self._trims = not self._held
