"""What is compared: the rows of the table, and what each is to reach.

Not here: how a row is measured (compare) and where its model comes from (models).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from firstword.bench.cases import Case, CaseKind

Rule = Literal["either", "both"]
LimitKind = Literal["memory", "arithmetic"]


@dataclass(frozen=True)
class Goal:
    """What a row is to reach.

    Args:
        ratio: our speed over the best peer's; None where there is none to compare with.
        share: our speed over what the machine allows; None where that does not count.
        rule: whether one of the two is enough.
        peers: those that count; empty for all.
    """

    ratio: float | None = None
    share: float | None = None
    rule: Rule = "either"
    peers: tuple[str, ...] = ()

    def is_met(self, ratio: float | None, share: float | None) -> bool | None:
        """Whether it is reached; None where what was measured does not tell."""
        pairs = ((self.ratio, ratio), (self.share, share))
        told = [found >= goal for goal, found in pairs if goal is not None and found is not None]
        asked = sum(goal is not None for goal, _ in pairs)
        if self.rule == "either" and any(told):
            return True
        if len(told) < asked or not asked:
            return False if self.rule == "both" and False in told else None
        return all(told)

    def __str__(self) -> str:
        parts = [] if self.ratio is None else [f"{self.ratio:.1f}x"]
        if self.share is not None:
            parts.append(f"{self.share:.0%} of the limit")
        return (" or " if self.rule == "either" else " and ").join(parts)


@dataclass(frozen=True)
class Row:
    """One model and one case.

    Args:
        model: a name that `models.find` knows.
        case: what is timed.
        goal: what it is to reach.
        text: prompts are cut from a real text instead of random tokens.
    """

    model: str
    case: Case
    goal: Goal = Goal()
    text: bool = False

    @property
    def id(self) -> str:
        """The row as the command line names it: model, slash, case."""
        case = self.case
        word = f"{'text' if self.text else case.kind}:{case.num_tokens}"
        if case.depth:
            word += f"@{case.depth}"
        return f"{self.model}/{word}" + (f"x{case.batch}" if case.batch > 1 else "")

    def is_counted(self, engine: str) -> bool:
        """Whether a peer is compared on this row; where no goal is set, all are."""
        if self.goal.share is not None and self.goal.ratio is None:
            return False
        return not self.goal.peers or engine in self.goal.peers

    @property
    def limit(self) -> LimitKind:
        """What bounds it: one sequence that decodes reads all weights for each token."""
        return "memory" if self.case.kind == "decode" and self.case.batch == 1 else "arithmetic"


def parse_row(word: str) -> Row:
    """A row from words like "smollm2:135m/decode:64@128x16" (tokens, depth, batch).

    Raises:
        ValueError: it has another form.
    """
    model, _, case = word.strip().rpartition("/")
    kind, _, sizes = case.partition(":")
    sizes, _, batch = sizes.partition("x")
    tokens, _, depth = sizes.partition("@")
    if not model or kind not in ("prefill", "decode", "text") or not tokens.isdigit():
        raise ValueError(f"{word!r} is no row: write MODEL/prefill:512 or MODEL/decode:64@128x16")
    phase: CaseKind = "decode" if kind == "decode" else "prefill"
    sized = Case(phase, int(tokens), int(depth or 0), int(batch or 1))
    return Row(model, sized, text=kind == "text")


def _row(word: str, goal: Goal) -> Row:
    plain = parse_row(word)
    return Row(plain.model, plain.case, goal, plain.text)


ROWS = (
    _row("smollm2:135m/prefill:512", Goal(2.5)),
    _row("smollm2:135m/decode:64@128", Goal(2.0, 0.85)),
    _row("smollm2:135m/decode:32@128x16", Goal(5.0, 0.5, "both", ("llama.cpp",))),
    _row("gemma3:270m/prefill:512", Goal(2.0)),
    _row("gemma3:270m/decode:64@128", Goal(1.5, 0.85)),
    _row("gemma3:270m/text:30000", Goal(2.0)),
    _row("1b:q4_k_m/prefill:128", Goal(2.0)),
    _row("1b:q4_k_m/prefill:512", Goal(2.0)),
    _row("1b:q4_k_m/decode:32@128", Goal(1.5, 0.9)),
    _row("1b:q4_0/prefill:128", Goal(2.0)),
    _row("1b:q4_0/prefill:512", Goal(2.0)),
    _row("1b:q4_0/decode:32@128", Goal(1.5, 0.9)),
    _row("1b:q4_0/decode:16@128x8", Goal(4.0, 0.5, "both", ("llama.cpp",))),
    _row("1b:q4_0/prefill:8192", Goal(2.0)),
    _row("1b:q4_0/decode:32@4096", Goal(1.5, 0.9)),
    _row("1b:q8_0/prefill:512", Goal(1.6)),
    _row("1b:q8_0/decode:32@128", Goal(1.4, 0.9)),
    _row("8b:q4_0/decode:16@128", Goal(share=0.9)),
)
"""The table; the smaller of ratio and share decides on a decode row of one sequence."""

BY_ID = {row.id: row for row in ROWS}


def chosen_rows(patterns: Sequence[str], models: Sequence[str] = ()) -> list[Row]:
    """Rows of the table that match a pattern like "1b:*/decode:*", and others written out.

    Args:
        patterns: as shells match them; empty for the whole table.
        models: keep the rows of these only; empty for all.

    Raises:
        ValueError: a pattern matches nothing and is no row either.
    """
    found: list[Row] = []
    for pattern in patterns or ["*"]:
        matched = [row for row in ROWS if fnmatchcase(row.id, pattern)]
        found += matched or [parse_row(pattern)]
    unique = list(dict.fromkeys(found))
    return [row for row in unique if not models or row.model in models]
