"""What the experiments found, as JSON and as a page; not how it was measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from firstword.bench.machine import fingerprint

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True)
class Goal:
    """A bound and what was measured.

    Args:
        text: the goal in words.
        value: what was found; None where it was not measured.
        bound: the least or the most.
        at_least: which of the two.
    """

    text: str
    value: float | None
    bound: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether it was measured and reached."""
        if self.value is None:
            return False
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def line(self) -> str:
        """A row of a table."""
        sign = "≥" if self.at_least else "≤"
        if self.value is None:
            return f"| {self.text} | not measured | {sign} {self.bound:g} | |"
        met = "yes" if self.is_met else "no"
        return f"| {self.text} | {self.value:.4g} | {sign} {self.bound:g} | {met} |"


@dataclass(frozen=True)
class Table:
    """Rows under a heading.

    Args:
        title: of the table.
        columns: their names.
        rows: numbers and words, one for each column.
        notes: sentences below it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = ()

    @property
    def lines(self) -> list[str]:
        """In Markdown."""
        return [
            f"## {self.title}",
            "",
            "| " + " | ".join(self.columns) + " |",
            "|---" * len(self.columns) + "|",
            *("| " + " | ".join(map(_cell, row)) + " |" for row in self.rows),
            "",
            *(line for note in self.notes for line in (note, "")),
        ]


@dataclass(frozen=True)
class Findings:
    """All that one experiment found.

    Args:
        name: of the experiment.
        title: what it is, in words.
        goals: with what was measured.
        tables: the figures.
        details: everything else, for the JSON file.
    """

    name: str
    title: str
    goals: Sequence[Goal]
    tables: Sequence[Table] = ()
    details: Mapping[str, object] = field(default_factory=dict)

    def page(self, day: str) -> str:
        """In Markdown."""
        machine = fingerprint()
        lines = [
            f"# {self.title}, {day}",
            "",
            f"{machine.cpu} ({', '.join(machine.features)}), {machine.cores} cores, "
            f"{machine.system}. firstword {machine.firstword}.",
            "",
            "| goal | measured | bound | met |",
            "|---|---|---|---|",
            *(goal.line for goal in self.goals),
            "",
        ]
        return "\n".join([*lines, *(line for table in self.tables for line in table.lines)])

    @property
    def is_met(self) -> bool:
        """Whether no goal that was measured is missed."""
        return all(goal.is_met for goal in self.goals if goal.value is not None)

    def write(self, folder: Path, day: str, name: str | None = None) -> str:
        """Write both files; returns the page.

        Args:
            folder: of the results.
            day: for title and names.
            name: of the files after the day; None for the experiment's.
        """
        folder.mkdir(parents=True, exist_ok=True)
        page, path = self.page(day), folder / f"{day}-{name or 'kv-' + self.name}"
        fields = {
            "format": 1,
            "machine": asdict(fingerprint()),
            "goals": [{**asdict(goal), "is_met": goal.is_met} for goal in self.goals],
            **self.details,
        }
        path.with_suffix(".json").write_text(json.dumps(fields, indent=1) + "\n")
        path.with_suffix(".md").write_text(page)
        return page


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
