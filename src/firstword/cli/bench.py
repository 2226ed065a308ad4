"""`firstword bench`: how fast a model runs on this machine."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firstword.cli import options
from firstword.cli.run import load
from firstword.cli.terminal import StatusLine

if TYPE_CHECKING:
    from firstword.bench.cases import Case
    from firstword.bench.report import Row, Setting
    from firstword.llm import LLM


def bench(
    model: Annotated[
        str | None, typer.Argument(help="A model as for --model; otherwise the default one.")
    ] = None,
    prompt: Annotated[
        str, typer.Option(help='Tokens to read, several with commas; "" for none.')
    ] = "128,512",
    generate: Annotated[
        str, typer.Option(help='Tokens to write, several with commas; "" for none.')
    ] = "64",
    depth: Annotated[str, typer.Option(help="Tokens that are there before.")] = "0,512",
    batch: Annotated[str, typer.Option(help="Sequences at once.")] = "1",
    chat: Annotated[
        bool, typer.Option(help="Also time a chat of 100 tokens in and 500 out.")
    ] = True,
    repeat: Annotated[int, typer.Option(help="Rounds to take the median of.", min=1)] = 5,
    threads: options.Threads = None,
    numerics: options.Numerics = None,
    kv_type: options.KVType = "f16",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write all numbers to this file.")
    ] = None,
) -> None:
    """Time reading (prefill) and writing (decode) at all combinations of the sizes given."""
    from firstword.bench.cases import Grid
    from firstword.bench.report import render, to_dict

    grid = Grid(
        prompts=_sizes("prompt", prompt),
        outputs=_sizes("generate", generate),
        depths=_sizes("depth", depth),
        batches=_sizes("batch", batch),
        chat=chat,
    )
    cases = grid.cases()
    with StatusLine() as status:
        llm = _load(model, cases, options.Machine(threads, numerics, kv_type=kv_type), status)
        rows, setting = _measure(llm, cases, repeat, status)
    if json_file is not None:
        json_file.write_text(json.dumps(to_dict(rows, setting), indent=2) + "\n")
    typer.echo(render(rows, setting))


def _sizes(name: str, text: str) -> list[int]:
    try:
        return [int(word.replace("_", "")) for word in text.split(",") if word.strip()]
    except ValueError:
        raise typer.BadParameter(
            f"--{name} is {text!r}: give whole numbers with commas between them, like 128,512"
        ) from None


def _load(
    model: str | None, cases: tuple[Case, ...], machine: options.Machine, status: StatusLine
) -> LLM:
    """Load a model with room for the largest case, and its prompts in the prefix cache."""
    from firstword.config import EngineConfig
    from firstword.trace.recorder import NullRecorder

    config = EngineConfig(
        max_model_len=max(case.context for case in cases) + 64,
        max_num_seqs=2 * max(case.batch for case in cases) + 2,
        kv_dtype=machine.kv_dtype,
        kv_disk_bytes=0,  # its prompts are nobody's
    )
    return load(model, config, NullRecorder(), machine, status)


def _measure(
    llm: LLM, cases: tuple[Case, ...], repeat: int, status: StatusLine
) -> tuple[list[Row], Setting]:
    from firstword.bench import machine
    from firstword.bench.limits import WorkCounter
    from firstword.bench.measure import Bench
    from firstword.bench.report import Setting, evaluate

    began = datetime.now(UTC).isoformat(timespec="seconds")
    load_before = machine.load_average()
    status.show("measuring how fast the machine is")
    before = machine.limits(llm.threads, llm.backend)
    measurements = Bench(llm).run(cases, repeat, status.show)
    limits = before.best(machine.limits(llm.threads, llm.backend))
    counter = WorkCounter(llm.checkpoint, llm.kv_spec)
    rows = evaluate(measurements, counter, limits.read_bandwidth, limits.mac_rates)
    path = llm.checkpoint.path
    setting = Setting(
        model=llm.name,
        file_name=path.name,
        file_bytes=path.stat().st_size,
        backend=llm.backend,
        threads=llm.threads,
        repeat=repeat,
        machine=machine.fingerprint(),
        read_bandwidth=limits.read_bandwidth,
        mac_rates=limits.mac_rates,
        load_average=(load_before, machine.load_average()),
        time=began,
    )
    return rows, setting
