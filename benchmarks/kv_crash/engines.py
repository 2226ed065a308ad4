"""Engines that share a folder of KV blocks, killed while they answer: the answers stay the same.

Not here: the files alone (files).
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Self

from benchmarks.closing import Closing
from benchmarks.endurance.report import Report
from benchmarks.kv.homes import KV_FOLDER
from benchmarks.kv_crash.damage import filled_files, flip
from benchmarks.kv_crash.process import ended, forked
from benchmarks.kv_crash.prompts import CONTEXT, MAX_DISK_BYTES, MAX_TOKENS, NUM_PROMPTS, prompts
from benchmarks.kv_crash.tally import Tally


@dataclass(frozen=True)
class Answer:
    """What a process wrote down of one answer.

    Args:
        index: of the prompt.
        token_ids: of the answer.
        num_disk: tokens of the prompt that came from the disk.
    """

    index: int
    token_ids: tuple[int, ...]
    num_disk: int


class EngineChecks(Closing):
    """Checks of engines in processes of their own, over one folder.

    Args:
        report: receives the findings.
        seed: of every random choice.
        model: a name or a file.
    """

    def __init__(self, report: Report, seed: int, model: str) -> None:
        from firstword.weights.catalogue import resolve

        self._report = report
        self._random = Random(seed)
        self._path = resolve(model)
        self._folder = TemporaryDirectory()
        self._home = Path(self._folder.name)
        self._kv = self._home / KV_FOLDER
        self._expected: dict[int, tuple[int, ...]] = {}
        self._seconds = 1.0  # that a process takes to answer all

    def __enter__(self) -> Self:
        # Loaded before any process is forked, so that each starts in a moment.
        import firstword.llm  # noqa: F401

        start = time.perf_counter()
        self._run(range(NUM_PROMPTS), 0)  # prepares the weights
        self._expected = {
            answer.index: answer.token_ids for answer in self._run(range(NUM_PROMPTS), 0)[1]
        }
        self._seconds = (time.perf_counter() - start) / 2
        return self

    def close(self) -> None:
        """Remove its folder."""
        self._folder.cleanup()

    def kills(self, number: int) -> None:
        """Kill processes at random times of their lives; each finds what the last ones left."""
        tally = Tally()
        for _ in range(number):
            order = self._random.sample(range(NUM_PROMPTS), NUM_PROMPTS)
            limit = self._random.random() * self._seconds
            self._count(tally, *self._run(order, MAX_DISK_BYTES, limit))
        self._count(tally, *self._run(range(NUM_PROMPTS), MAX_DISK_BYTES))
        self._report.check(tally.is_good, f"engines: {number} kills: {tally}")

    def damage(self, number: int) -> None:
        """Flip a bit or cut a file off between one process and the next."""
        tally = Tally()
        for _ in range(number):
            order = self._random.sample(range(NUM_PROMPTS), 2)
            self._harm()
            self._count(tally, *self._run(order, MAX_DISK_BYTES))
        self._report.check(tally.is_good, f"engines: {number} times damaged: {tally}")

    def neighbours(self, rounds: int) -> None:
        """Two processes answer the same prompts at the same time."""
        from firstword.kvcache.disk.home import KVHome

        tally = Tally()
        for _ in range(rounds):
            KVHome(self._kv).clear()
            started = [self._start(range(NUM_PROMPTS), MAX_DISK_BYTES) for _ in range(2)]
            for pid, pipe in started:
                self._count(tally, *_results(pid, pipe))
        self._report.check(tally.is_good, f"engines: {rounds} times two at once: {tally}")

    def _count(self, tally: Tally, status: int, answers: list[Answer]) -> None:
        for answer in answers:
            tally.answer(self._expected[answer.index] == answer.token_ids, answer.num_disk)
        tally.num_failed += status not in (0, -9)
        tally.look_at(self._kv, MAX_DISK_BYTES)

    def _run(
        self, order: range | list[int], max_bytes: int, limit: float | None = None
    ) -> tuple[int, list[Answer]]:
        """Answer prompts in a process; returns its status and what it wrote down."""
        pid, pipe = self._start(order, max_bytes)
        if limit is not None:
            time.sleep(limit)
            os.kill(pid, signal.SIGKILL)
        return _results(pid, pipe)

    def _start(self, order: range | list[int], max_bytes: int) -> tuple[int, int]:
        reading, writing = os.pipe()
        pid = forked(partial(self._answer, order, max_bytes, writing))
        os.close(writing)
        return pid, reading

    def _answer(self, order: range | list[int], max_bytes: int, pipe: int) -> None:
        """What each process does."""
        from firstword.config import EngineConfig
        from firstword.llm import LLM
        from firstword.sampling.params import SamplingParams

        os.environ["FIRSTWORD_HOME"] = str(self._home)
        config = EngineConfig(
            kv_disk_bytes=max_bytes,
            max_model_len=CONTEXT,
            max_num_seqs=4,
            kv_memory_bytes=64 * 2**20,
        )
        llm = LLM(self._path, config=config, threads=1)
        texts, params = prompts(), SamplingParams(max_tokens=MAX_TOKENS, temperature=0)
        for index in order:
            output = llm.generate(texts[index], params)[0]
            sources = output.metrics.sources
            line = [index, list(output.outputs[0].token_ids), sources.disk]
            os.write(pipe, json.dumps(line).encode() + b"\n")
        exchange = llm.engine.kv.exchange
        if exchange is not None:
            exchange.tier.close()

    def _harm(self) -> None:
        files = filled_files(self._kv)
        if not files:
            return
        path = self._random.choice(files)
        size = path.stat().st_size
        if self._random.random() < 0.3:
            os.truncate(path, self._random.randrange(size))
        else:
            flip(path, self._random.randrange(8 * size))


def _results(pid: int, pipe: int) -> tuple[int, list[Answer]]:
    """Wait for a process; its status, and the answers that it wrote down in full."""
    with open(pipe, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    answers = [json.loads(line) for line in lines]
    return ended(pid), [Answer(index, tuple(ids), disk) for index, ids, disk in answers]
