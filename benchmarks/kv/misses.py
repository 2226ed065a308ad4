"""Misses planted in a real server, and what its `usage` calls them.

"too_short" is not among them: it takes a disk so slow that computing a block is sooner. Not here:
how a cause is found (kvcache.misses), and in which words it is told.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.kv.completion import Usage, Words, body, complete
from benchmarks.kv.homes import KV_FOLDER, clean_home
from benchmarks.kv.results import Findings, Goal, Table
from benchmarks.kv.sides import kv_bytes_per_token
from benchmarks.peers.models import find
from benchmarks.serving.servers import FirstwordServer, Launch, RunningServer, free_port
from firstword.bench.serving.http import Address

_PROMPT_TOKENS = 600  # 18 blocks of 32, and 24 tokens that the answer completes to another
_ANSWER_TOKENS = 16
_LAST_BLOCK = 576
_DAYS_31 = 31 * 86_400
_SMALL_MEMORY = 450 * 2**20  # room for a few prompts beside the weights of the usual model


@dataclass(frozen=True)
class Found:
    """What came of one request.

    Args:
        what: was planted.
        cause, position: that were planted; None for no miss, and for any position.
        usage: as the server told.
    """

    what: str
    cause: str | None
    position: int | None
    usage: Usage

    @property
    def is_right(self) -> bool:
        """Whether cause and position are those that were planted."""
        miss = self.usage.miss
        if miss.get("cause") != self.cause:
            return False
        return self.position is None or miss.get("position") == self.position


class Stage:
    """Starts servers on one cache folder, and asks them.

    Args:
        model: the file.
        threads: of the servers.
        home: the cache folder.

    Attributes:
        found: of every request that was sent, in their order.
    """

    def __init__(self, model: Path, threads: int, home: Path) -> None:
        self._model, self._threads, self.home = model, threads, home
        self._address = Address("", 0)
        self._drawn = random.Random(0)
        self._words = Words.of(model)
        self.found: list[Found] = []

    @property
    def prompt_bytes(self) -> int:
        """Of the keys and values of a prompt."""
        return _PROMPT_TOKENS * kv_bytes_per_token(self._model)

    @contextmanager
    def server(self, *flags: str, disk: int | None = None) -> Iterator[None]:
        """A server, which ends as an operator would have it: all is written that can be.

        Args:
            flags: of `firstword serve`.
            disk: bytes for KV blocks; None for the usual ones.
        """
        environment = {"FIRSTWORD_HOME": str(self.home)}
        if disk is not None:
            environment["FIRSTWORD_KV_DISK"] = str(disk)
        launch = Launch(self._model, free_port(), None, self._threads)
        with RunningServer(FirstwordServer(flags), launch, environment) as running:
            self._address = running.address
            yield

    def text(self, num_tokens: int) -> list[int]:
        """Tokens that no earlier text has."""
        return self._drawn.choices(self._words.ids, k=num_tokens)

    def other(self, token: int) -> int:
        """A token that is not this one."""
        return next(word for word in self._words.ids if word != token)

    def ask(
        self, what: str, prompt: Sequence[int], cause: str | None = None,
        position: int | None = None, **further: object,
    ) -> list[int]:  # fmt: skip
        """Ask, and note what was planted and what was found; returns the answer."""
        fields = body(prompt, _ANSWER_TOKENS, logit_bias=self._words.bias, **further)
        answer = asyncio.run(complete(self._address, fields))
        self.found.append(Found(what, cause, position, answer.usage))
        print(_line(self.found[-1]), file=sys.stderr, flush=True)
        return self._words.encode(answer.text)


def texts(stage: Stage) -> None:
    """Other text, the same, and more: without and with a restart between."""
    prompt = stage.text(_PROMPT_TOKENS)
    changed = [*prompt[:300], stage.other(prompt[300]), *prompt[301:]]
    with stage.server():
        answer = stage.ask("the first prompt of all", prompt)
        stage.ask("a token in its middle changed", changed, "different_text", 300)
        stage.ask("the same once more", prompt)
        stage.ask("it goes on after its answer", [*prompt, *answer, *stage.text(50)])
        stage.ask("the same with a salt", prompt, cache_salt="of somebody else")
    with stage.server():
        stage.ask("2 tokens of its last block after a restart", prompt[: _LAST_BLOCK + 2])
        stage.ask("all of it after a restart", prompt)
        last = [*prompt[:-20], stage.other(prompt[-20]), *prompt[-19:]]
        stage.ask("a token near its end changed", last, "different_text", _PROMPT_TOKENS - 20)


def evicted(stage: Stage) -> None:
    """Gone from memory where there is no disk, and gone from the disk."""
    memory = _SMALL_MEMORY
    prompt = stage.text(_PROMPT_TOKENS)
    with stage.server("--memory", str(memory), "--context", "2048", disk=0):
        stage.ask("no disk: the first", prompt)
        for _ in range(memory // stage.prompt_bytes):
            stage.ask("no disk: others", stage.text(_PROMPT_TOKENS), *_OTHER_TEXT)
        stage.ask("no disk: the first again", prompt, "evicted", 0)
    with stage.server(disk=3 * stage.prompt_bytes):
        stage.ask("small disk: the first", prompt)
        for _ in range(6):
            stage.ask("small disk: others", stage.text(_PROMPT_TOKENS), *_OTHER_TEXT)
    with stage.server(disk=3 * stage.prompt_bytes):
        stage.ask("small disk: the first after a restart", prompt, "evicted", 0)


def expired(stage: Stage) -> None:
    """On the disk, but not used for 31 days."""
    prompt = stage.text(_PROMPT_TOKENS)
    with stage.server():
        stage.ask("31 days ago", prompt)
    then = time.time() - _DAYS_31
    for path in (stage.home / KV_FOLDER).rglob("*"):
        os.utime(path, (then, then))
    with stage.server():
        stage.ask("today", prompt, "expired", 0)


def other_settings(stage: Stage) -> None:
    """On the disk, of the same model with another arithmetic."""
    prompt = stage.text(_PROMPT_TOKENS)
    with stage.server():
        stage.ask("native", prompt)
    with stage.server("--numerics", "blas"):
        stage.ask("blas", prompt, "other_settings", 0)


SCENES: Sequence[Callable[[Stage], None]] = (texts, evicted, expired, other_settings)
_OTHER_TEXT = ("different_text", None)  # words are few: some of them begin alike


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The experiment's own options."""
    names = ",".join(scene.__name__ for scene in SCENES)
    parser.add_argument("--model", default="smollm2:135m", help="of the catalogue, or a file")
    parser.add_argument("--scenes", default=names, help=f"of {names}")


def measure(options: argparse.Namespace) -> Findings:
    """Play the scenes, each on a cache folder of its own."""
    model, found = find(options.model), list[Found]()
    for scene in SCENES:
        if scene.__name__ in options.scenes.split(","):
            with clean_home() as home:
                stage = Stage(model, options.threads, home)
                scene(stage)
                found += stage.found
    wrong = sum(not one.is_right for one in found)
    not_summing = sum(not one.usage.adds_up for one in found)
    goals = [
        Goal("misses with another cause or position than planted", wrong, 0),
        Goal("requests whose sources do not add up", not_summing, 0),
    ]
    details = {"found": [{**asdict(one), "is_right": one.is_right} for one in found]}
    return Findings("misses", "Planted misses", goals, [_table(found)], details)


def _table(found: Sequence[Found]) -> Table:
    rows = [
        (
            one.what,
            _named(one.cause, one.position),
            _named(one.usage.miss.get("cause"), one.usage.miss.get("position")),
            one.usage.prompt,
            *(one.usage.sources.get(name, 0) for name in ("memory", "disk", "neighbour")),
            "yes" if one.is_right and one.usage.adds_up else "no",
        )
        for one in found
    ]
    columns = ["request", "planted", "told", "prompt", "memory", "disk", "neighbour", "right"]
    return Table("Requests", columns, rows)


def _named(cause: object, position: object) -> str:
    if cause is None:
        return "none"
    return str(cause) if position is None else f"{cause} at {position}"


def _line(one: Found) -> str:
    told = _named(one.usage.miss.get("cause"), one.usage.miss.get("position"))
    return f"{'ok' if one.is_right else 'WRONG':6}{one.what}: {told} {dict(one.usage.sources)}"
