"""A trace of agents' turns on a server: time, tokens computed, and the least there was to compute.

Not here: what is asked (trace), the least (minimum) and who answers (sides). Turns are sent one
after the other, so that what was computed before each of them is certain.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.endurance.processes import PeakMemory
from benchmarks.kv.completion import Answer, Words, body, complete
from benchmarks.kv.minimum import ComputedTokens, least_computed
from benchmarks.kv.sides import Side
from benchmarks.kv.trace import Turn
from benchmarks.serving.servers import RunningServer
from firstword.bench.serving.http import Address

_LOOK_SECONDS = 0.5
_TEMPERATURE = 1.0
"""Answers to the same prompt differ, as their seeds do."""


@dataclass(frozen=True)
class Record:
    """A turn and what was found.

    Args:
        number, kind: of the turn.
        prompt, answer: tokens.
        computed: positions that the server computed, by its `usage`.
        least: positions that had to be computed.
        ttft, seconds: to the first word, and to the end.
        sources: of the cached tokens, where the server says.
        adds_up: whether the sources are all that was cached; None where the server has none.
        miss: why no more was reused, as the server says.
    """

    number: int
    kind: str
    prompt: int
    answer: int
    computed: int
    least: int
    ttft: float
    seconds: float
    sources: dict[str, int] = field(default_factory=dict)
    adds_up: bool | None = None
    miss: dict[str, object] = field(default_factory=dict)


@dataclass
class Played:
    """A trace as one server answered it.

    Args:
        name: of the side.
        records: of the turns, in their order.
        starts: seconds until the server was ready, for each start.
        anonymous, resident: most bytes of its processes: their own, and with files mapped.
        digest: of all answers.
    """

    name: str
    records: list[Record] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    anonymous: int = 0
    resident: int = 0
    digest: str = ""

    @property
    def seconds(self) -> float:
        """Of all turns, starting apart."""
        return sum(record.seconds for record in self.records)

    @property
    def computed(self) -> int:
        """Positions of all turns."""
        return sum(record.computed for record in self.records)

    @property
    def least(self) -> int:
        """Positions that had to be computed."""
        return sum(record.least for record in self.records)

    @property
    def excess(self) -> float:
        """Share of positions computed beyond the least; 0 is none."""
        return self.computed / self.least - 1 if self.least else 0.0

    def to_dict(self) -> dict[str, object]:
        """As plain values, with the sums."""
        sums = {"seconds": self.seconds, "computed": self.computed, "least": self.least}
        return {**asdict(self), **sums, "excess": self.excess}


class Player:
    """Sends a trace to one side.

    Args:
        side: the server.
        model: the file.
        threads: to compute with.
        words: of the model.
        progress: told of each turn.
    """

    Progress = Callable[[str], None]

    def __init__(
        self, side: Side, model: Path, threads: int, words: Words, progress: Progress
    ) -> None:
        self._side, self._model, self._threads, self._words = side, model, threads, words
        self._progress = progress
        self._computed = ComputedTokens()
        self._answers: list[list[int]] = []
        self.played = Played(side.name)

    async def play(self, turns: Sequence[Turn], restarts: Sequence[int] = ()) -> Played:
        """Send the turns.

        Args:
            turns: of a trace, from its first.
            restarts: turns before which the server is killed, and started again.

        Raises:
            RequestFailedError: a turn was not answered.
            EngineFailedError: the server did not start.
        """
        bounds = [0, *restarts, len(turns)]
        for begin, end in pairwise(bounds):
            start = time.perf_counter()
            launch = self._side.launch(self._model, self._threads)
            server = RunningServer(self._side.server, launch, self._side.environment)
            self.played.starts.append(time.perf_counter() - start)
            address = server.address
            with server:
                with PeakMemory(server.pids, _LOOK_SECONDS) as peak:
                    for turn in turns[begin:end]:
                        await self._ask(address, turn)
                self._note(peak)
                server.kill()
        answers = json.dumps(self._answers).encode()
        self.played.digest = hashlib.sha256(answers).hexdigest()[:16]
        return self.played

    async def _ask(self, address: Address, turn: Turn) -> None:
        prompt = turn.prompt(self._answers)
        further = {"logit_bias": self._words.bias, "seed": turn.number, "temperature": _TEMPERATURE}
        fields = body(prompt, turn.num_answer_tokens, **further, **self._side.fields(turn.agent))
        answer = await complete(address, fields)
        tokens = self._words.encode(answer.text)
        assert len(tokens) == turn.num_answer_tokens == answer.usage.completion
        self._answers.append(tokens)
        least = least_computed(self._computed, prompt, tokens)
        record = _record(turn, answer, least)
        self.played.records.append(record)
        self._progress(
            f"{self._side.name}: {turn.number + 1} {turn.kind}: {record.prompt} tokens, "
            f"{record.computed} computed of at least {least}, {record.seconds:.2f} s"
        )

    def _note(self, peak: PeakMemory) -> None:
        self.played.resident = max(self.played.resident, peak.pss)
        self.played.anonymous = max(self.played.anonymous, peak.anonymous)


def _record(turn: Turn, answer: Answer, least: int) -> Record:
    usage = answer.usage
    return Record(
        turn.number,
        turn.kind,
        usage.prompt,
        usage.completion,
        usage.positions,
        least,
        answer.ttft,
        answer.seconds,
        dict(usage.sources),
        usage.adds_up if usage.sources else None,
        dict(usage.miss),
    )
