"""`firstword serve`: a model behind an HTTP address, for many clients at once."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from firstword.cli import options
from firstword.cli.terminal import StatusLine, note

if TYPE_CHECKING:
    from firstword.async_llm import AsyncLLM
    from firstword.config import EngineConfig
    from firstword.server.observed import OperatedLLM
    from firstword.server.settings import LogFormat, LogLevel, ServerSettings

_NEEDED = ("fastapi", "uvicorn", "httptools", "pydantic", "prometheus_client")
_MIB = 2**20

_MAX_QUEUED_REQUESTS = 512
"""Requests that may wait; one more is told to come back later."""


def serve(
    model: Annotated[
        str | None, typer.Argument(help="A model as for --model; otherwise the default one.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any that is free.")] = 8000,
    name: Annotated[
        str | None, typer.Option(help="What clients call the model; otherwise as it is named here.")
    ] = None,
    threads: options.Threads = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Most memory to take, weights included, like 4G; otherwise by what is free."
        ),
    ] = None,
    context: options.Context = None,
    max_num_seqs: Annotated[int, typer.Option(help="Most sequences at once.", min=1)] = 64,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY or NAME:KEY that clients must send; may be given again.",
            envvar="FIRSTWORD_API_KEY",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File of such keys, one per line.")
    ] = None,
    isolate_keys: Annotated[
        bool, typer.Option("--isolate-keys", help="Share no cached prompts between keys.")
    ] = False,
    open_metrics: Annotated[
        bool, typer.Option("--open-metrics", help="Answer /metrics without a key.")
    ] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may call, * for all; may be given again."),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name clients may call the server by; may be given again."),
    ] = None,
    request_timeout: Annotated[
        float, typer.Option(help="Seconds after which a request ends with an error; 0: never.")
    ] = 600.0,
    drain_seconds: Annotated[
        float, typer.Option(help="Seconds that running requests have to end at shutdown.")
    ] = 30.0,
    max_body_mb: Annotated[
        float, typer.Option("--max-body-mb", help="Largest body of a request, in MiB.")
    ] = 4.0,
    log_level: Annotated[
        str, typer.Option(help="Least severity to log: debug, info, warning, error.")
    ] = "info",
    log_format: Annotated[str, typer.Option(help="text, or json: one object per line.")] = "text",
    numerics: options.Numerics = None,
    panel_cache: options.PanelCache = True,
    kv_type: options.KVType = "f16",
    kv_disk: options.KVDisk = None,
) -> None:
    """Serve a model to clients of the OpenAI and Anthropic APIs, and a page to chat on."""
    _check_installed()
    from firstword.server.auth import read_keys
    from firstword.server.settings import ServerSettings

    settings = ServerSettings(
        host=host,
        port=port,
        model_name=name,
        api_keys=read_keys(api_key or (), api_key_file),
        isolate_keys=isolate_keys,
        metrics_need_key=not open_metrics,
        cors_origins=tuple(cors_origin or ()),
        allowed_hosts=tuple(allowed_host or ()),
        max_body_bytes=round(max_body_mb * _MIB),
        request_timeout=request_timeout or None,
        drain_seconds=drain_seconds,
        log_level=cast("LogLevel", log_level),
        log_format=cast("LogFormat", log_format),
    )
    machine = options.Machine(threads, numerics, panel_cache, kv_disk, kv_type)
    config = _engine_config(memory, context, max_num_seqs, machine)
    _run(model, config, machine, settings)


def _check_installed() -> None:
    from firstword.errors import ConfigError

    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the server needs {', '.join(missing)}, which the plain install leaves out: "
            'pip install "firstword[server]"'
        )


def _engine_config(
    memory: str | None, context: int | None, max_num_seqs: int, machine: options.Machine
) -> EngineConfig:
    from firstword.config import EngineConfig, parse_size

    return EngineConfig(
        max_model_len=context,
        max_num_seqs=max_num_seqs,
        max_queued_requests=_MAX_QUEUED_REQUESTS,
        memory_bytes=None if memory is None else parse_size(memory, "memory"),
        enable_panel_cache=machine.panel_cache,
        kv_dtype=machine.kv_dtype,
        kv_disk_bytes=machine.kv_disk_bytes,
    )


def _run(
    model: str | None, config: EngineConfig, machine: options.Machine, settings: ServerSettings
) -> None:
    from firstword.server.run import serve as run_server
    from firstword.weights.catalogue import DEFAULT_MODEL, resolve

    numerics = options.checked_numerics(machine.numerics)
    resolve(model)  # a download shows its own progress
    _warn_of(settings)
    status = StatusLine()
    status.show(f"loading {model or DEFAULT_MODEL}")

    async def load() -> AsyncLLM:
        from firstword.async_llm import AsyncLLM

        llm = AsyncLLM(
            model, config=config, numerics=numerics, threads=machine.threads, own_process=True
        )
        return await llm.start()

    def on_start(llm: OperatedLLM, url: str) -> None:
        status.clear()
        for line in start_lines(llm, url, machine.threads):
            typer.echo(line)

    try:
        run_server(load, settings, on_start)
    except KeyboardInterrupt:  # while the model was loaded
        raise typer.Exit(130) from None
    finally:
        status.clear()


def _warn_of(settings: ServerSettings) -> None:
    if not settings.is_loopback and not settings.api_keys:
        note(
            f"firstword: warning: everyone who reaches {settings.host} can use this server: ask "
            "for keys with --api-key-file, or leave out --host to serve this machine alone"
        )


def start_lines(llm: OperatedLLM, url: str, threads: int | None) -> list[str]:
    """What a person is told once the server answers.

    Args:
        llm: the model.
        url: where it is served.
        threads: as asked for; None when the machine decided.
    """
    from firstword.plan.hardware import usable_cores
    from firstword.weights.progress import format_bytes

    info = llm.info
    why = "as asked" if threads is not None else usable_cores().reason
    lines = [f"firstword: note: {notice}" for notice in info.notices]
    return [
        *lines,
        f"{llm.name} ({format_bytes(info.weight_bytes)}) on {info.num_threads} "
        f"{'thread' if info.num_threads == 1 else 'threads'} ({why}), {info.backend}",
        info.memory_summary,
        f"chat at {url}/, APIs at {url}/v1 (Ctrl-C stops)",
    ]
