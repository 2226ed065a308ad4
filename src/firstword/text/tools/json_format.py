"""What the formats of tool calls share: each call is a JSON object, with marks around it or not.

Not here: which words and marks a model was trained on (one file per format).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from firstword.sampling.params import Grammar
from firstword.text.reasoning import ReasoningFormat
from firstword.text.tools.calls import CallParser, CallSyntax
from firstword.text.tools.grammar import CallLayout, call_grammar
from firstword.text.tools.spec import ToolChoice, ToolSpec

IsControl = Callable[[str], bool]
"""Whether a string is a control token of the vocabulary."""


@dataclass(frozen=True)
class JsonFormat:
    """A format of tool calls; see spec.ToolFormat.

    Args:
        name: short name.
        syntax: where calls are looked for.
        layout: how a call is written when it must be made.
        needs_special: the marks are control tokens.
        guide: the system text that describes the tools; {tools} stands for one JSON object per
            line and tool.
    """

    name: str
    syntax: CallSyntax
    layout: CallLayout
    guide: str
    needs_special: bool = False

    def parser(
        self, names: Collection[str], call_id: Callable[[int], str], *, parallel: bool = True
    ) -> CallParser:
        """A parser for one answer; see spec.ToolFormat."""
        return CallParser(self.syntax, names, call_id, parallel=parallel)

    def grammar(
        self,
        tools: Sequence[ToolSpec],
        choice: ToolChoice,
        parallel: bool = True,
        *,
        reasoning: ReasoningFormat | None = None,
        inside_reasoning: bool = False,
    ) -> Grammar | None:
        """What holds the output to calls; see spec.ToolFormat."""
        if choice in ("auto", "none"):
            return None
        text = call_grammar(self.layout, tools, choice, parallel)
        if reasoning is not None:
            text = reasoning.in_grammar(text, inside=inside_reasoning)
        return Grammar("lark", text)

    def instructions(self, tools: Sequence[Mapping[str, object]]) -> str:
        """A system text that describes the tools; see spec.ToolFormat."""
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        return self.guide.replace("{tools}", listed)

    def written(self, name: str, arguments: str) -> str:
        """A call as the model would write it; see spec.ToolFormat."""
        return self.layout.opening(name) + arguments + self.layout.closing
