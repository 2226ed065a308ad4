"""Demand of twice the KV pool: all requests end, with the tokens that each gives alone."""

from __future__ import annotations

import asyncio
import re

from benchmarks.endurance.processes import PeakMemory
from benchmarks.endurance.report import Report
from benchmarks.endurance.served import Served, words
from benchmarks.peers.session import EngineFailedError
from firstword.kvcache.spec import kv_bytes
from firstword.models.registry import model_kv_spec
from firstword.weights.catalogue import resolve
from firstword.weights.checkpoint import open_checkpoint

CLIENTS = 32
_PROMPT_WORDS = 100
_TEMPLATE_TOKENS = 40
_OUTPUT_TOKENS = 96
_CONTEXT = 512


def pool_bytes(model: str, num_clients: int) -> int:
    """Half of what so many clients need for their keys and values at their end."""
    checkpoint = open_checkpoint(resolve(model))
    spec = model_kv_spec(checkpoint.config, "float16")
    tokens = _PROMPT_WORDS + _TEMPLATE_TOKENS + _OUTPUT_TOKENS
    return num_clients * kv_bytes(spec, tokens) // 2


def budget_with(model: str, pool: int, *flags: str) -> int:
    """The --memory that leaves so many bytes for the pool; the server says what else it needs."""
    try:
        Served(model, "--memory", "1M", *flags).close()
    except EngineFailedError as error:
        found = re.search(r"more than ([\d,]+) bytes", str(error))
        if found is None:
            raise
        return int(found[1].replace(",", "")) + pool
    raise EngineFailedError("a memory of 1 MiB was accepted")


async def _answers(served: Served, num_clients: int, salt: str, together: bool) -> list[object]:
    """What each client got: its tokens with their log probabilities, or the error."""
    turn = asyncio.Semaphore(num_clients if together else 1)

    async def ask(index: int) -> object:
        async with turn:
            body = served.chat(
                words(_PROMPT_WORDS, index), _OUTPUT_TOKENS, seed=index, temperature=1.0,
                logprobs=True, top_logprobs=2, cache_salt=salt,
            )  # fmt: skip
            reply = await served.ask("/v1/chat/completions", body)
        answer = reply.json()
        return answer["choices"] if reply.status == 200 else answer

    return await asyncio.gather(*map(ask, range(num_clients)))


async def pressure(report: Report, model: str) -> None:
    """Run the check.

    Args:
        report: receives the findings.
        model: a name or a path.
    """
    flags = ("--context", str(_CONTEXT), "--max-num-seqs", str(CLIENTS))
    wanted = pool_bytes(model, CLIENTS)
    budget = budget_with(model, wanted, *flags)
    with Served(model, "--memory", str(budget), *flags) as served:
        report.say(next(line for line in served.lines if line.startswith("keys and values")))
        with PeakMemory(served.pids) as peak:
            together = await _answers(served, CLIENTS, "together", together=True)
            metrics = await served.metrics()
            alone = await _answers(served, CLIENTS, "alone", together=False)
    _report(report, together, alone)
    preemptions = metrics["num_preemptions_total"]
    report.check(preemptions > 0, f"pressure: {preemptions:.0f} preemptions counted")
    text = f"MB resident at most, {peak.pss / 1e6:.0f} with shared pages counted once"
    report.check(
        peak.rss <= budget,
        f"pressure: {peak.rss / 1e6:.0f} {text}, of a budget of {budget / 1e6:.0f} MB",
    )


def _report(report: Report, together: list[object], alone: list[object]) -> None:
    num_finished = sum(isinstance(answer, list) for answer in together)
    report.check(
        num_finished == len(together), f"pressure: {num_finished} of {len(together)} finished"
    )
    others = [i for i, pair in enumerate(zip(together, alone, strict=True)) if pair[0] != pair[1]]
    num_equal = len(together) - len(others)
    report.check(
        not others,
        f"pressure: {num_equal} of {len(together)} gave the tokens and logprobs they give alone",
    )
    for index in others:
        report.say(f"together: {str(together[index])[:300]}")
        report.say(f"alone:    {str(alone[index])[:300]}")
