"""What the drivers in Python share: one case a line in, its time as JSON out.

It imports nothing of this repository, since each driver runs in its engine's own environment.
"""

import array
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

TEXT_STEP = 97  # by so many tokens each text begins later than the last


class Case(NamedTuple):
    """What to time: kind is "prefill" or "decode", depth the tokens before, batch the sequences."""

    kind: str
    num_tokens: int
    depth: int
    batch: int


@dataclass(frozen=True)
class Job:
    """The arguments that every driver takes, and the settings behind them."""

    model: str
    threads: int
    context: int
    batch: int
    text: str
    settings: tuple[str, ...]


class Model(Protocol):
    """A loaded engine."""

    def time(self, case: Case) -> dict[str, object]:
        """Run a case once; "tokens" and "seconds" are what was timed."""
        ...


class Prompts:
    """Token ids: from a file of a text, or random ones.

    Args:
        text: a file of ids with 32 bits each; "-" for random ones.
        ids: where random ones come from.
    """

    def __init__(self, text: str, ids: range) -> None:
        self._ids = ids
        self._text = array.array("i")
        self._count = 0
        self._kept: dict[tuple[int, int], list[int]] = {}
        if text != "-":
            with open(text, "rb") as file:
                self._text.frombytes(file.read())

    def fresh(self, count: int) -> list[int]:
        """Ids that no earlier prompt begins with."""
        begin = TEXT_STEP * self._count
        self._count += 1
        if not self._text:
            return random.choices(self._ids, k=count)
        return [self._text[(begin + i) % len(self._text)] for i in range(count)]

    def kept(self, count: int, number: int = 0) -> list[int]:
        """The same ids whenever this many are asked for under this number."""
        if (count, number) not in self._kept:
            self._kept[count, number] = self.fresh(count)
        return self._kept[count, number]


def serve(load: Callable[[Job], Model]) -> None:
    """Load what the command line names, and answer cases until there are no more."""
    model_file, threads, context, batch, text, *settings = sys.argv[1:]
    sizes = (int(threads), int(context), int(batch))
    try:
        model = load(Job(model_file, *sizes, text, tuple(settings)))
        say("READY")
        for line in sys.stdin:
            kind, *numbers = line.split()
            say("RESULT " + json.dumps(model.time(Case(kind, *map(int, numbers)))))
    except Exception as error:
        say("FAILED " + " ".join(f"{type(error).__name__}: {error}".split()))


def say(line: str) -> None:
    """Print a line at once."""
    print(f"\n{line}", flush=True)  # what a library printed may have no end of line
