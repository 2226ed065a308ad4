"""What a request says of its tools, and what a format of tool calls can do.

Not here: the formats themselves (one file each), how one is chosen (registry).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from firstword.sampling.params import Grammar
from firstword.text.pieces import Piece
from firstword.text.reasoning import ReasoningFormat


@dataclass(frozen=True)
class ToolSpec:
    """A tool that the model may call.

    Args:
        name: of the function.
        description: what it does, for the model to read.
        parameters: JSON schema of its arguments, an object; empty for a tool without any.
        pointer: where the schema stands in what brought it, as a JSON pointer (RFC 6901), for who
            reads of an error in it.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict, hash=False)
    pointer: str = field(default="", compare=False)

    def for_template(self) -> dict[str, object]:
        """The tool as chat templates read it."""
        parameters = dict(self.parameters) or {"type": "object", "properties": {}}
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": parameters,
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class NamedTool:
    """The choice of one tool that must be called.

    Args:
        name: of the tool.
    """

    name: str


ToolChoice = Literal["auto", "none", "required"] | NamedTool


class ToolParser(Protocol):
    """Finds the tool calls of one answer while it is written."""

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain after this text."""
        ...

    def finish(self) -> list[Piece]:
        """The pieces that were held back, once no more text comes."""
        ...


class ToolFormat(Protocol):
    """How a model writes tool calls."""

    @property
    def name(self) -> str:
        """Short name: "llama3", "hermes", "gemma" or "generic"."""
        ...

    @property
    def needs_special(self) -> bool:
        """Its marks are control tokens: text must be made with skip_special_tokens=False."""
        ...

    def parser(
        self, names: Collection[str], call_id: Callable[[int], str], *, parallel: bool = True
    ) -> ToolParser:
        """A parser for one answer.

        Args:
            names: the tools; what looks like a call of another is content.
            call_id: the id of the i-th call of the answer.
            parallel: more than one call may be made; else what follows the first is content.
        """
        ...

    def grammar(
        self,
        tools: Sequence[ToolSpec],
        choice: ToolChoice,
        parallel: bool = True,
        *,
        reasoning: ReasoningFormat | None = None,
        inside_reasoning: bool = False,
    ) -> Grammar | None:
        """What holds the output to calls with valid arguments; None where choice is auto or none.

        Args:
            tools: at least one.
            choice: see ToolChoice.
            parallel: more than one call may be made.
            reasoning: the model may reason before it calls.
            inside_reasoning: the prompt has opened the reasoning already.

        Raises:
            ConfigError: the choice names a tool that is not there, or there is none.
            GrammarError: a schema cannot be enforced; its pointer begins with
                /tools/i/function/parameters.
        """
        ...

    def instructions(self, tools: Sequence[Mapping[str, object]]) -> str:
        """A system text that describes the tools, for templates that do not.

        Args:
            tools: as from `ToolSpec.for_template`.
        """
        ...

    def written(self, name: str, arguments: str) -> str:
        """A call as the model would write it, for templates that do not.

        Args:
            name: of the tool.
            arguments: JSON text.
        """
        ...
