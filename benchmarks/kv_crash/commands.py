"""`firstword run` and `firstword serve`, killed at any moment: what they answer stays the same.

Not here: engines without a command around them (engines), and files alone (files).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Self

from benchmarks.closing import Closing
from benchmarks.endurance.report import Report
from benchmarks.kv.command import num_cached_tokens, run_command
from benchmarks.kv.completion import Answer, body, complete
from benchmarks.kv.homes import KV_FOLDER, clean_home
from benchmarks.kv_crash.prompts import CONTEXT, MAX_DISK_BYTES, MAX_TOKENS, prompts
from benchmarks.kv_crash.tally import Tally
from benchmarks.serving.servers import FirstwordServer, Launch, RunningServer, free_port

_FLAGS = ("--context", str(CONTEXT))


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
        answers: list[Answer] = []
        with self._server(0) as server:
            asyncio.run(_ask_all(server, self._texts, answers))
        self._served = [answer.bits for answer in answers]
        return self

    def close(self) -> None:
        """Remove its folder."""
        self._stack.close()

    def runs(self, number: int) -> None:
        """Kill `firstword run` at random times of its life, or just let it end."""
        start = time.perf_counter()
        self._run(0, MAX_DISK_BYTES)
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
            said, num_cached = self._run(index, MAX_DISK_BYTES, limit)
        except subprocess.TimeoutExpired:
            return
        except subprocess.CalledProcessError:
            tally.num_failed += 1
        else:
            tally.answer(said == self._said[index], num_cached)
        finally:
            tally.look_at(self._home / KV_FOLDER, MAX_DISK_BYTES)

    def _run(self, index: int, max_bytes: int, limit: float | None = None) -> tuple[str, int]:
        """Have a prompt answered by a command; returns its answer and the tokens cached.

        Raises:
            subprocess.TimeoutExpired: it was killed at the limit.
            subprocess.CalledProcessError: it failed.
        """
        flags = (*_FLAGS, "--kv-disk", str(max_bytes))
        ended = subprocess.run(
            run_command(self._path, MAX_TOKENS, 1, *flags),
            input=self._texts[index].encode(),
            capture_output=True,
            timeout=limit,
            check=True,
            env={**os.environ, "FIRSTWORD_HOME": str(self._home)},
        )
        num_cached = num_cached_tokens(ended.stderr.decode(errors="replace"))
        return ended.stdout.decode(errors="replace"), num_cached or 0

    # -- serve -------------------------------------------------------------------------------------

    def _serve(self, tally: Tally, limit: float | None) -> None:
        """Ask a new server for the prompts in a random order, and kill it at the limit or then."""
        order = self._random.sample(range(len(self._texts)), len(self._texts))
        with self._server(MAX_DISK_BYTES) as server:
            answers, failed = asyncio.run(self._ask_until(server, order, limit))
        tally.num_failed += failed
        for index, answer in zip(order, answers, strict=False):
            is_right = answer.bits == self._served[index]
            tally.answer(is_right, answer.usage.sources.get("disk", 0))
        tally.look_at(self._home / KV_FOLDER, MAX_DISK_BYTES)

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


async def _ask_all(server: RunningServer, texts: Sequence[str], answers: list[Answer]) -> None:
    """Have texts continued, one after the other.

    Args:
        server: who is asked.
        texts: the prompts.
        answers: receives each answer as soon as it is there.
    """
    for text in texts:
        answers.append(await complete(server.address, body(text, MAX_TOKENS, logprobs=1)))
