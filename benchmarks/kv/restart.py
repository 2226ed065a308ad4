"""A prompt before and after the end of the process that read it: the first word, and the tokens.

The server and its engine are killed (SIGKILL) as soon as the answer is there; `firstword run` ends
by itself. Not here: what is left on the disk by a kill at any other moment (endurance).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from benchmarks.kv.command import num_cached_tokens, run_command
from benchmarks.kv.completion import Answer, Words, body, complete
from benchmarks.kv.homes import clean_home
from benchmarks.kv.results import Findings, Goal, Table
from benchmarks.peers.models import find
from benchmarks.serving.servers import FirstwordServer, Launch, RunningServer, free_port
from firstword.bench.serving.prompts import OPENING

CASES = "1b:q4_0=4000,gemma3:270m=30000"
"""Models, and tokens of the prompt."""

_ANSWER_TOKENS = 16
_LIMIT = 0.05
_TTFT = re.compile(r"first word after ([\d.]+) s")


@dataclass(frozen=True)
class Start:
    """A process's first answer to the prompt.

    Args:
        seconds: from the request to the first word; of a command, from its start.
        ttft: of a command, by the engine's own count.
        cached: tokens of the prompt that were not computed.
        sources: of these, where the server says.
        answer: its text, and what else must not change.
    """

    seconds: float
    ttft: float
    cached: int
    sources: Mapping[str, int]
    answer: object


@dataclass(frozen=True)
class Round:
    """A cold start and a warm one, of a server or of commands.

    Args:
        way: "serve" or "run".
        cold, warm: the two.
    """

    way: str
    cold: Start
    warm: Start

    @property
    def ratio(self) -> float:
        """Of the warm time to the cold one."""
        return self.warm.seconds / self.cold.seconds

    @property
    def is_same(self) -> bool:
        """Whether the tokens are the same."""
        return self.cold.answer == self.warm.answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The experiment's own options."""
    add = parser.add_argument
    add("--cases", default=CASES, help="MODEL=TOKENS, with commas")
    add("--ways", default="serve,run", help="of serve, run")
    add("--rounds", type=int, default=3, help="of each, with a prompt of its own")
    add("--flags", default="", help="further ones of both commands")


def measure(options: argparse.Namespace) -> Findings:
    """Run all cases."""
    goals: list[Goal] = []
    rows: list[Sequence[object]] = []
    details = []
    for case in options.cases.split(","):
        name, _, count = case.rpartition("=")
        model = find(name)
        words = Words.of(model)
        for way in options.ways.split(","):
            rounds = []
            for number in range(options.rounds):
                text = prompt_text(words, int(count), number)
                with clean_home() as home:
                    rounds.append(WAYS[way](model, text, home, options))
                print(_line(case, rounds[-1]), file=sys.stderr, flush=True)
            rows.append(_row(case, rounds))
            goals += _goals(case, rounds)
            details += [{"case": case, **asdict(r)} for r in rounds]
    columns = ["prompt", "way", "cold s", "warm s", "warm over cold", "cached", "engine's TTFT s"]
    note = (
        "Seconds to the first word: of the request to a server that is ready, of a command from "
        "its start. Medians; every round has a prompt of its own and an empty folder of KV blocks."
    )
    table = Table("First words", columns, rows, [note])
    title = "The same prompt after the process that read it has ended"
    return Findings("restart", title, goals, [table], {"rounds": details})


def prompt_text(words: Words, num_tokens: int, seed: int) -> str:
    """A text of so many tokens, the beginning of text included, that differs with the seed."""
    drawn = random.Random(seed).choices([*words.by_text], k=num_tokens - len(words.begin) - 2)
    return " ".join((OPENING, *drawn))


def serve_twice(model: Path, text: str, home: Path, options: argparse.Namespace) -> Round:
    """Ask a server, kill it, start it again and ask the same."""
    flags, environment = tuple(options.flags.split()), {"FIRSTWORD_HOME": str(home)}
    starts = []
    for _ in range(2):
        launch = Launch(model, free_port(), None, options.threads)
        with RunningServer(FirstwordServer(flags), launch, environment) as server:
            answer = asyncio.run(complete(server.address, body(text, _ANSWER_TOKENS, logprobs=1)))
            server.kill()
        starts.append(_served(answer))
    return Round("serve", *starts)


def _served(answer: Answer) -> Start:
    usage = answer.usage
    return Start(answer.ttft, answer.ttft, usage.cached, dict(usage.sources), answer.bits)


def run_twice(model: Path, text: str, home: Path, options: argparse.Namespace) -> Round:
    """Run the same command two times."""
    command = run_command(model, _ANSWER_TOKENS, options.threads, *options.flags.split())
    environment = {**os.environ, "FIRSTWORD_HOME": str(home)}
    return Round("run", *(_run(command, text, environment) for _ in range(2)))


def _run(command: Sequence[str], text: str, environment: Mapping[str, str]) -> Start:
    """Run a command with a text as its input.

    Raises:
        RuntimeError: it failed, or told nothing of the request.
    """
    pipe, start = subprocess.PIPE, time.perf_counter()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as done:
        assert done.stdin and done.stdout and done.stderr
        done.stdin.write(text.encode())
        done.stdin.close()
        first = os.read(done.stdout.fileno(), 1)
        seconds = time.perf_counter() - start
        answer, said = first + done.stdout.read(), done.stderr.read().decode()
    ttft, num_cached = _TTFT.search(said), num_cached_tokens(said)
    if done.returncode or not ttft or num_cached is None:
        raise RuntimeError(f"firstword run ended with {done.returncode}: {said[-500:]}")
    return Start(seconds, float(ttft[1]), num_cached, {}, answer.decode(errors="replace"))


WAYS = {"serve": serve_twice, "run": run_twice}


def _line(case: str, found: Round) -> str:
    same = "same" if found.is_same else "OTHER"
    cold, warm = found.cold, found.warm
    return (
        f"{case}, {found.way}: {cold.seconds:.2f} s, then {warm.seconds:.3f} s "
        f"({found.ratio:.2%}), {warm.cached} cached {dict(warm.sources)}, {same} tokens"
    )


def _row(case: str, rounds: Sequence[Round]) -> Sequence[object]:
    cold, warm = ([getattr(r, name) for r in rounds] for name in ("cold", "warm"))
    return (
        case,
        rounds[0].way,
        median(start.seconds for start in cold),
        median(start.seconds for start in warm),
        f"{median(r.ratio for r in rounds):.2%}",
        min(start.cached for start in warm),
        f"{median(s.ttft for s in cold):.2f}, {median(s.ttft for s in warm):.3f}",
    )


def _goals(case: str, rounds: Sequence[Round]) -> list[Goal]:
    way = rounds[0].way
    ratio = median(found.ratio for found in rounds)
    others = sum(not found.is_same for found in rounds)
    return [
        Goal(f"{case}, {way}: warm over cold", ratio, _LIMIT),
        Goal(f"{case}, {way}: answers with other tokens", others, 0),
    ]
