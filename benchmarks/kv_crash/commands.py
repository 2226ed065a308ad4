"""`firstword run` and `firstword serve`, killed at any moment: what they answer stays the same.

Not here: engines without a command around them (engines), and files alone (files).
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Self

from benchmarks.closing import Closing
from benchmarks.endurance.report import Report
from benchmarks.kv.completion import Answer, body, complete
from benchmarks.kv.homes import KV_FOLDER, clean_home
from benchmarks.kv_crash.engines import prompts
from benchmarks.kv_crash.tally import Tally
from benchmarks.serving.servers import FirstwordServer, Launch, RunningServer, free_port
from firstword.bench.serving.http import Address

_MAX_TOKENS = 8
_MAX_BYTES = 48 * 10**6  # some of the prompts must give way
_CACHED = re.compile(r"\((\d[\d,]*) cached")
_FLAGS = ("--context", "1024")


class CommandChecks(Closing):
    """Checks of the commands, over one folder of KV blocks.

    Args:
        report: receives the findings.
        seed: of every random choice.
        model: a name or a file.
    """

    def __init__(self, report: Report, seed: int, model: str) -> None:
        from firstword.weights.catalogue import resolve

        self._report, self._random = report, Random(seed)
        self._path = resolve(model)
        self._texts = prompts()
        self._stack = ExitStack()
        self._home = Path()
        self._said: list[str] = []  # by `run`, of each prompt
        self._served: list[object] = []  # by `serve`

    def __enter__(self) -> Self:
        self._home = self._stack.enter_context(clean_home())
        self._said = [self._run(index, 0)[0] for index in range(len(self._texts))]
        order = range(len(self._texts))
        with self._server(0) as server:
            answers = asyncio.run(_ask_all(server, [self._texts[i] for i in order]))
        self._served = [_kept(answer) for answer in answers]
        return self

    def close(self) -> None:
        """Remove its folder."""
        self._stack.close()

    def runs(self, number: int) -> None:
        """Kill `firstword run` at random times of its life, or just let it end."""
        start = time.perf_counter()
        self._run(0, _MAX_BYTES)
        seconds = time.perf_counter() - start
        tally = Tally()
        for _ in range(number):
            index = self._random.randrange(len(self._texts))
            self._count_run(tally, index, self._random.random() * 1.5 * seconds)
        for index in range(len(self._texts)):
            self._count_run(tally, index, None)
        self._report.check(tally.is_good, f"firstword run: {number} kills: {tally}")

    def servers(self, number: int) -> None:
        """Kill `firstword serve` while it answers, and ask a last one for everything."""
        tally = Tally()
        start = time.perf_counter()
        self._serve(tally, None)
        seconds = time.perf_counter() - start
        for _ in range(number):
            self._serve(tally, self._random.random() * seconds)
        self._serve(tally, None)
        self._report.check(tally.is_good, f"firstword serve: {number} kills: {tally}")

    # -- run ---------------------------------------------------------------------------------------

    def _count_run(self, tally: Tally, index: int, limit: float | None) -> None:
        try:
            said, num_cached = self._run(index, _MAX_BYTES, limit)
        except subprocess.TimeoutExpired:
            return
        except subprocess.CalledProcessError:
            tally.num_failed += 1
        else:
            tally.answer(said == self._said[index], num_cached)
        finally:
            tally.look_at(self._home / KV_FOLDER, _MAX_BYTES)

    def _run(self, index: int, max_bytes: int, limit: float | None = None) -> tuple[str, int]:
        """Have a prompt answered by a command; returns its answer and the tokens cached.

        Raises:
            subprocess.TimeoutExpired: it was killed at the limit.
            subprocess.CalledProcessError: it failed.
        """
        command = [
            sys.executable, "-m", "firstword", "run", "-m", str(self._path), "--raw", "--stats",
            "--temperature", "0", "--max-tokens", str(_MAX_TOKENS), "--threads", "1", *_FLAGS,
            "--kv-disk", str(max_bytes), "-",
        ]  # fmt: skip
        ended = subprocess.run(
            command,
            input=self._texts[index].encode(),
            capture_output=True,
            timeout=limit,
            check=True,
            env={**os.environ, "FIRSTWORD_HOME": str(self._home)},
        )
        cached = _CACHED.search(ended.stderr.decode(errors="replace"))
        return ended.stdout.decode(errors="replace"), int(
            cached[1].replace(",", "")
        ) if cached else 0

    # -- serve -------------------------------------------------------------------------------------

    def _serve(self, tally: Tally, limit: float | None) -> None:
        """Ask a new server for the prompts in a random order, and kill it at the limit or then."""
        order = self._random.sample(range(len(self._texts)), len(self._texts))
        with self._server(_MAX_BYTES) as server:
            answers, failed = asyncio.run(self._ask_until(server, order, limit))
        tally.num_failed += failed
        for index, answer in zip(order, answers, strict=False):
            is_right = _kept(answer) == self._served[index]
            tally.answer(is_right, answer.usage.sources.get("disk", 0))
        tally.look_at(self._home / KV_FOLDER, _MAX_BYTES)

    def _server(self, max_bytes: int) -> RunningServer:
        server = FirstwordServer((*_FLAGS, "--kv-disk", str(max_bytes)))
        launch = Launch(self._path, free_port(), None, threads=1, slots=4)
        return RunningServer(server, launch, {"FIRSTWORD_HOME": str(self._home)})

    async def _ask_until(
        self, server: RunningServer, order: Sequence[int], limit: float | None
    ) -> tuple[list[Answer], bool]:
        """Ask, and kill the server; returns the answers, and whether one failed before that."""
        answers: list[Answer] = []
        asking = asyncio.create_task(_ask_all(server, [self._texts[i] for i in order], answers))
        ended, _ = await asyncio.wait([asking], timeout=limit)
        server.kill()
        (outcome,) = await asyncio.gather(asking, return_exceptions=True)
        return answers, bool(ended) and isinstance(outcome, BaseException)


async def _ask_all(
    server: RunningServer, texts: Sequence[str], answers: list[Answer] | None = None
) -> list[Answer]:
    """Have texts continued, one after the other.

    Args:
        server: who is asked.
        texts: the prompts.
        answers: receives each answer as soon as it is there.
    """
    answers = [] if answers is None else answers
    address = Address.parse(server.url.removesuffix("/v1"))
    for text in texts:
        answers.append(await complete(address, body(text, _MAX_TOKENS, logprobs=1)))
    return answers


def _kept(answer: Answer) -> object:
    """What of an answer must not change."""
    return answer.text, answer.logprobs
