"""`firstword run`: answer one prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from firstword.cli import options
from firstword.cli.terminal import PromptProgress, StatusLine, note, note_stats, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstword.config import EngineConfig
    from firstword.engine.outputs import RequestOutput, TextDelta
    from firstword.llm import LLM
    from firstword.processor.prompt import Prompt
    from firstword.trace.recorder import Recorder


def run(
    prompt: Annotated[
        str | None, typer.Argument(help='What to answer; "-" or nothing reads standard input.')
    ] = None,
    model: options.Model = None,
    preset: options.Preset = "chat",
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    max_tokens: options.MaxTokens = options.MAX_TOKENS,
    stop: options.Stop = None,
    system: options.System = None,
    raw: options.Raw = False,
    stats: options.Stats = False,
    threads: options.Threads = None,
    context: options.Context = None,
    numerics: options.Numerics = None,
    panel_cache: options.PanelCache = True,
    kv_type: options.KVType = "f16",
    kv_disk: options.KVDisk = None,
) -> None:
    """Answer one prompt, word by word, on standard output."""
    text = options.read_prompt(prompt)
    params = options.sampling_params(
        preset,
        max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=stop,
    )
    with StatusLine() as status:
        machine = options.Machine(threads, numerics, panel_cache, kv_disk, kv_type)
        llm = load_model(model, machine, context, status)
        output = write_stream(llm.stream(make_prompt(text, system, raw), params), status)
    write_answer("\n")
    if stats and output is not None:
        note_stats(output)
    if output is None:
        raise typer.Exit(130)


def load_model(
    model: str | None, machine: options.Machine, context: int | None, status: StatusLine
) -> LLM:
    """Load a model whose only listener shows the progress of prompts."""
    from firstword.config import EngineConfig
    from firstword.trace.recorder import NullRecorder, Recorder

    recorder: Recorder = NullRecorder()
    if status.is_shown:
        recorder = Recorder(max_events_per_request=1, max_requests=1)
        recorder.listen(PromptProgress(status))
    config = EngineConfig(
        max_model_len=context,
        enable_panel_cache=machine.panel_cache,
        kv_dtype=machine.kv_dtype,
        kv_disk_bytes=machine.kv_disk_bytes,
    )
    return load(model, config, recorder, machine, status)


def load(
    model: str | None,
    config: EngineConfig,
    recorder: Recorder,
    machine: options.Machine,
    status: StatusLine,
) -> LLM:
    """Load a model for a command, with progress and notices on stderr."""
    from firstword.weights.catalogue import DEFAULT_MODEL, resolve

    resolve(model)  # a download shows its own progress
    status.show(f"loading {model or DEFAULT_MODEL}")
    from firstword.llm import LLM

    llm = LLM(
        model,
        config=config,
        numerics=options.checked_numerics(machine.numerics),
        threads=machine.threads,
        recorder=recorder,
    )
    status.clear()
    for notice in llm.notices:
        note(f"firstword: note: {notice}")
    return llm


def make_prompt(text: str, system: str | None, raw: bool) -> Prompt:
    """A raw text, or the messages of a chat of one turn."""
    if raw:
        if system is not None:
            raise typer.BadParameter("--system needs the chat template: leave out --raw")
        return text
    messages = [{"role": "system", "content": system}] if system is not None else []
    return [*messages, {"role": "user", "content": text}]


def write_stream(deltas: Iterator[TextDelta], status: StatusLine) -> RequestOutput | None:
    """Write an answer as it comes; None when Ctrl-C ended it (what was written stays)."""
    output = None
    try:
        for delta in deltas:
            if delta.text:
                status.clear()
                write_answer(delta.text)
            output = delta.output or output
    except KeyboardInterrupt:
        close = getattr(deltas, "close", None)
        if close is not None:
            close()
        return None
    finally:
        status.clear()
    return output
