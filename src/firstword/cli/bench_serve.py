"""`firstword bench serve`: how a server answers under load, ours or any with OpenAI's API."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from firstword.bench.serving.client import Target
    from firstword.bench.serving.exchange import Exchange
    from firstword.bench.serving.load import Listener
    from firstword.bench.serving.report import Setting
    from firstword.bench.serving.statistics import Limits
    from firstword.bench.serving.workloads import Sizes

_COUNTED = ("distinct", "shared-prefix", "multi-turn")
"""Workloads whose number of requests is known before."""


@dataclass(frozen=True)
class _Plan:
    """What is run.

    Args:
        workload: by name.
        sizes: of it.
        warm_up: requests before it that do not count.
    """

    workload: str
    sizes: Sizes
    warm_up: int


def bench_serve(
    base_url: Annotated[
        str, typer.Option(help="Of any server with OpenAI's API.")
    ] = "http://127.0.0.1:8000/v1",
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="As the server names it; otherwise its first."),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(help="May be given again: two-keys floods from the second."),
    ] = None,
    workload: Annotated[
        str,
        typer.Option(help="distinct, shared-prefix, multi-turn, long-prompt, two-keys or leaving."),
    ] = "distinct",
    requests: Annotated[int, typer.Option(help="Requests that are measured.", min=1)] = 64,
    concurrency: Annotated[int, typer.Option(help="Clients at once.", min=1)] = 16,
    rate: Annotated[
        float | None,
        typer.Option(help="Instead: conversations per second, as a Poisson process.", min=0.001),
    ] = None,
    input_tokens: Annotated[int, typer.Option(help="Tokens of a prompt.", min=1)] = 150,
    output_tokens: Annotated[int, typer.Option(help="Tokens of an answer.", min=1)] = 64,
    prefix_tokens: Annotated[
        int, typer.Option(help="shared-prefix: tokens before those of --input-tokens.", min=1)
    ] = 1000,
    turns: Annotated[int, typer.Option(help="multi-turn: of each conversation.", min=1)] = 4,
    long_tokens: Annotated[
        int, typer.Option(help="long-prompt: tokens of the long one.", min=1)
    ] = 4000,
    leave_seconds: Annotated[
        float, typer.Option(help="leaving: clients go away within this time.", min=0)
    ] = 2.0,
    warmup: Annotated[int, typer.Option(help="Requests before, not measured.", min=0)] = 2,
    seed: Annotated[int, typer.Option(help="Of prompts and arrivals.")] = 0,
    ttft_limit_ms: Annotated[
        float | None, typer.Option(help="Goodput: a first token later than this is not good.")
    ] = None,
    itl_limit_ms: Annotated[
        float | None, typer.Option(help="Goodput: 95% of the gaps must be within this.")
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option(help="Ask for answers of full length, where servers know this field.")
    ] = True,
    timeout: Annotated[float, typer.Option(help="Seconds a request may take.", min=0.1)] = 600.0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write every request to this file.")
    ] = None,
) -> None:
    """Send a server requests, and tell its tokens per second and how long people wait."""
    from firstword.bench.serving.client import Target
    from firstword.bench.serving.statistics import Limits
    from firstword.bench.serving.workloads import Sizes

    sizes = Sizes(
        requests=requests,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        rate=rate,
        prefix_tokens=prefix_tokens,
        turns=turns,
        long_tokens=long_tokens,
        leave_seconds=leave_seconds,
        seed=seed,
    )
    target = Target(base_url, model or "", tuple(api_key or ()), ignore_eos, timeout)
    limits = Limits(_seconds(ttft_limit_ms), _seconds(itl_limit_ms))
    exchanges, setting = _measure(target, _Plan(workload, sizes, warmup), limits)
    _print(exchanges, setting, json_file)
    if setting.was_interrupted:
        raise typer.Exit(130)
    if not any(exchange.is_complete for exchange in exchanges):
        raise typer.Exit(1)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _measure(target: Target, plan: _Plan, limits: Limits) -> tuple[list[Exchange], Setting]:
    """Run a workload; Ctrl-C ends it early and keeps what there is."""
    import asyncio  # 30 ms, which every other command would pay

    from firstword.bench import machine
    from firstword.bench.serving.client import Client, resolve_model
    from firstword.bench.serving.measure import Measurement
    from firstword.bench.serving.report import Setting

    began = datetime.now(UTC).isoformat(timespec="seconds")
    load_before, interrupted = machine.load_average(), False
    target = replace(target, model=asyncio.run(resolve_model(target)))
    with _progress(plan) as listener:
        measurement = Measurement(Client(target), listener)
        try:
            asyncio.run(measurement.run(plan.workload, plan.sizes, plan.warm_up))
        except KeyboardInterrupt:
            interrupted = True
    setting = Setting(
        base_url=target.base_url,
        model=target.model,
        workload=plan.workload,
        sizes=plan.sizes,
        limits=limits,
        warm_up=plan.warm_up,
        machine=machine.fingerprint(),
        load_average=(load_before, machine.load_average()),
        time=began,
        was_interrupted=interrupted,
    )
    return measurement.exchanges, setting


@contextmanager
def _progress(plan: _Plan) -> Iterator[Listener]:
    """A bar on stderr that moves with each exchange; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda exchange: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        total = plan.sizes.requests if plan.workload in _COUNTED else None
        task = progress.add_task(plan.workload, total=total)
        yield lambda exchange: progress.advance(task)


def _print(exchanges: list[Exchange], setting: Setting, json_file: Path | None) -> None:
    from firstword.bench.serving.report import render, to_dict

    if json_file is not None:
        json_file.write_text(json.dumps(to_dict(exchanges, setting), indent=1) + "\n")
    typer.echo(render(exchanges, setting))
