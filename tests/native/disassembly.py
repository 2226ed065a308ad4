"""Loops of compiled functions and what they do on the stack, from objdump's listing.

A loop is what lies between a jump backwards and its target; an innermost one has no other inside.
Not here: which functions are looked at (test_spills).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
_TARGET = re.compile(r"^([0-9a-f]+) <")
_STACK = re.compile(r"\(%rsp[,)]")
_FRAME = re.compile(r"\(%rbp[,)]")


@dataclass(frozen=True)
class Instruction:
    """One line of a listing."""

    address: int
    name: str
    operands: str

    def __str__(self) -> str:
        return f"{self.address:x}: {self.name} {self.operands}"

    @property
    def target(self) -> int | None:
        """Where a jump goes."""
        found = _TARGET.match(self.operands) if self.name.startswith("j") else None
        return int(found[1], 16) if found else None


@dataclass(frozen=True)
class Function:
    """A function's instructions in the order of their addresses."""

    name: str
    instructions: tuple[Instruction, ...]

    @property
    def has_frame(self) -> bool:
        """Whether rbp points into the stack; else it holds anything."""
        return any(i.name == "mov" and i.operands == "%rsp,%rbp" for i in self.instructions)

    def stack_uses(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        """Those that read or write memory on the stack, pushes and calls included."""
        patterns = [_STACK, _FRAME] if self.has_frame else [_STACK]
        return [
            i
            for i in instructions
            if i.name.startswith(("push", "pop", "call"))
            or (i.name != "lea" and any(p.search(i.operands) for p in patterns))
        ]

    def innermost_loops(self) -> list[tuple[Instruction, ...]]:
        """Bodies of loops without loops in them."""
        spans = {
            (i.target, i.address)
            for i in self.instructions
            if i.target is not None and self.instructions[0].address <= i.target <= i.address
        }
        inner = [
            (first, last)
            for first, last in sorted(spans)
            if not any(
                other != (first, last) and first <= other[0] and other[1] <= last for other in spans
            )
        ]
        return [
            tuple(i for i in self.instructions if first <= i.address <= last)
            for first, last in inner
        ]


def disassemble(file: Path) -> list[Function]:
    """The functions of an object file."""
    listing = subprocess.run(
        ["objdump", "-d", "-C", "--no-show-raw-insn", "-w", str(file)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return parse(listing)


def parse(listing: str) -> list[Function]:
    """The functions of a listing."""
    names: list[str] = []
    bodies: list[list[Instruction]] = []
    for line in listing.splitlines():
        if title := _FUNCTION.match(line):
            names.append(title[1])
            bodies.append([])
        elif bodies and (found := _LINE.match(line)):
            bodies[-1].append(Instruction(int(found[1], 16), found[2], found[3].strip()))
    return [Function(name, tuple(body)) for name, body in zip(names, bodies, strict=True) if body]
