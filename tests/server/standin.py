"""Stands in for text.tools and text.reasoning where they are missing: one simple format of each.

`<think>...</think>` is reasoning, `<tool_call>{"name", "arguments"}</tool_call>` a call.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType


@dataclass(frozen=True)
class ToolSpec:
    name: str
    description: str
    parameters: dict

    def for_template(self):
        function = {"name": self.name, "description": self.description}
        return {"type": "function", "function": {**function, "parameters": self.parameters}}


@dataclass(frozen=True)
class NamedTool:
    name: str


@dataclass(frozen=True)
class ContentPiece:
    text: str


@dataclass(frozen=True)
class ReasoningPiece:
    text: str


@dataclass(frozen=True)
class ToolCallStart:
    index: int
    call_id: str
    name: str


@dataclass(frozen=True)
class ToolArguments:
    index: int
    text: str


@dataclass(frozen=True)
class ToolCallEnd:
    index: int


class Format:
    name = "hermes"
    needs_special = False

    def grammar(self, tools, choice, parallel):
        from firstword.sampling.params import Grammar

        return None if choice in ("auto", "none") else Grammar("json_object")


class AnswerParser:
    def __init__(self, *, reasoning, tools):
        self.tags = {"": []}
        self.tags[""] += [("<think>", "think")] if reasoning else []
        self.tags[""] += [("<tool_call>", "call")] if tools else []
        self.tags |= {"think": [("</think>", "")], "call": [("</tool_call>", "")]}
        self.mode, self.held, self.count = "", "", 0

    def push(self, text, final=False):
        pieces = []
        self.held += text
        while True:
            found = [(self.held.find(t), t, m) for t, m in self.tags[self.mode] if t in self.held]
            if not found:
                break
            at, tag, mode = min(found)
            pieces += self.emit(self.held[:at], closed=True)
            self.held, self.mode = self.held[at + len(tag) :], mode
        safe = len(self.held)
        if not final:
            for tag, _ in self.tags[self.mode]:
                for size in range(1, len(tag)):
                    if self.held.endswith(tag[:size]):
                        safe = min(safe, len(self.held) - size)
        if self.mode != "call" or final:
            pieces += self.emit(self.held[:safe], closed=False)
            self.held = self.held[safe:]
        return pieces

    def emit(self, text, closed):
        if self.mode == "think":
            return [ReasoningPiece(text)] if text else []
        if self.mode == "call" and closed:
            call = json.loads(text)
            index, self.count = self.count, self.count + 1
            arguments = ToolArguments(index, json.dumps(call["arguments"]))
            return [
                ToolCallStart(index, f"call_{index}", call["name"]),
                arguments,
                ToolCallEnd(index),
            ]
        return [ContentPiece(text)] if text else []

    def finish(self):
        return self.push("", final=True)


def install():
    if find_spec("firstword.text.tools") is None:
        tools = ModuleType("firstword.text.tools")
        tools.__dict__.update({k: v for k, v in globals().items() if k[0].isupper()})
        tools.Piece = tools.ToolChoice = object
        tools.tool_format = lambda source: Format()
        sys.modules["firstword.text.tools"] = tools
    if find_spec("firstword.text.reasoning") is None:
        reasoning = ModuleType("firstword.text.reasoning")
        reasoning.reasoning_format = lambda source: object()
        sys.modules["firstword.text.reasoning"] = reasoning


install()
