"""`firstword explain`: what happened between a prompt and each word of its answer."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from firstword.cli import options
from firstword.cli.run import load, make_prompt
from firstword.cli.terminal import PromptProgress, StatusLine, format_bytes

if TYPE_CHECKING:
    from firstword.engine.outputs import RequestOutput
    from firstword.trace.explanation import (
        Computations,
        DecodePart,
        Explanation,
        PromptPart,
        SourcesPart,
    )

MAX_TOKENS = 24
"""An explanation shows every token, so it asks for few unless told otherwise."""


def explain(
    prompt: Annotated[
        str | None, typer.Argument(help='What to answer; "-" or nothing reads standard input.')
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    kv_cache: Annotated[
        bool,
        typer.Option("--kv-cache/--no-kv-cache", help="Off recomputes every position each time."),
    ] = True,
    model: options.Model = None,
    preset: options.Preset = "chat",
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of the answer.")] = MAX_TOKENS,
    stop: options.Stop = None,
    system: options.System = None,
    raw: options.Raw = False,
    threads: options.Threads = None,
    context: options.Context = None,
    numerics: options.Numerics = None,
    panel_cache: options.PanelCache = True,
    kv_type: options.KVType = "f16",
    kv_disk: options.KVDisk = None,
) -> None:
    """Answer a prompt and tell what happened, from its tokens to the time of each word."""
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
    from firstword.config import EngineConfig
    from firstword.trace.explain import NUM_CANDIDATES
    from firstword.trace.recorder import Recorder

    machine = options.Machine(threads, numerics, panel_cache, kv_disk, kv_type)
    config = EngineConfig(
        max_model_len=context,
        enable_kv_cache=kv_cache,
        enable_panel_cache=panel_cache,
        kv_dtype=machine.kv_dtype,
        kv_disk_bytes=machine.kv_disk_bytes,
        num_top_logprobs=NUM_CANDIDATES,
    )
    recorder = Recorder()
    with StatusLine() as status:
        recorder.listen(PromptProgress(status))
        llm = load(model, config, recorder, machine, status)
        output = None
        for delta in llm.stream(make_prompt(text, system, raw), params):
            output = delta.output or output
    assert output is not None  # the last piece carries it
    _print(llm.explain(output.request_id), output, as_json)


def _print(explanation: Explanation, output: RequestOutput, as_json: bool) -> None:
    if as_json:
        values = {**explanation.to_dict(), "text": output.text}
        typer.echo(json.dumps(values, indent=2, ensure_ascii=False))
    else:
        typer.echo(render(explanation, output.text, width=_width()))


def _width() -> int:
    """Columns to write for: the terminal's, or 100 where the text goes into a pipe or file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 100


def render(explanation: Explanation, answer: str, width: int = 100) -> str:
    """The explanation as text, in the order in which things happened.

    Args:
        explanation: what to tell.
        answer: the whole answer.
        width: columns to fold at, at least 20.
    """
    e = explanation
    sections = [
        ("1. The prompt becomes tokens", _prompt(e.prompt)),
        ("2. Prefill: one pass reads the whole prompt", _prefill(e)),
        ("3. Keys and values: what is kept", _kv(e)),
        ("4. Decode: one token per step", _decode(e)),
        ("5. What the cache saved", _cache(e)),
        ("6. The strategy that chose", _strategy(e)),
        ("7. Where the time went", _timeline(e)),
        ("8. The answer", [answer]),
    ]
    width = max(width, 20)
    head = f"{e.model} on the {e.backend} backend, {_count(e.num_threads, 'thread')}"
    lines = _fold([f"{head}, loaded in {e.load_ms / 1e3:.2f} s"], width)
    for title, body in sections:
        lines += ["", title, *_fold([f"  {line}" if line else "" for line in body], width)]
    return "\n".join(lines)


def _fold(lines: list[str], width: int) -> list[str]:
    """Break long lines between words; what follows is indented two columns more."""
    import textwrap

    folded: list[str] = []
    for text in lines:
        for line in text.split("\n"):
            indent = " " * (len(line) - len(line.lstrip()) + 2)
            folded += textwrap.wrap(
                line, width, subsequent_indent=indent, replace_whitespace=False, tabsize=4
            ) or [""]
    return folded


def _prompt(prompt: PromptPart) -> list[str]:
    lines = [
        f"{_count(prompt.num_tokens, 'token')}: {prompt.num_typed_tokens} of what was typed, "
        f"{prompt.num_template_tokens} added by the template, in {prompt.encode_ms:.1f} ms"
    ]
    if prompt.tokens:
        lines.append(" ".join(f"{_quoted(t.text)}={t.token_id}" for t in prompt.tokens))
    return lines


def _prefill(e: Explanation) -> list[str]:
    prefill = e.prefill
    speed = prefill.flops / prefill.ms / 1e6 if prefill.ms > 0 else 0.0
    lines = [
        f"{_count(prefill.num_rows, 'row')} computed, {prefill.num_cached_tokens} taken from the "
        f"cache; {_flops(prefill.flops)} in {prefill.ms:.1f} ms ({speed:.1f} GFLOP/s)",
        *_sources(prefill.sources),
    ]
    if prefill.miss is not None:
        lines.append(prefill.miss.in_words())
    if len(prefill.passes) > 1:
        lines += [
            f"step {p.step}: positions {p.start} to {p.start + p.num_rows - 1}, "
            f"{_flops(p.flops)}, {p.ms:.1f} ms"
            + (f", beside {p.num_other_rows} rows of others" if p.num_other_rows else "")
            for p in prefill.passes
        ]
    return lines


def _sources(sources: SourcesPart) -> list[str]:
    named = {
        "memory": sources.memory,
        "disk": sources.disk,
        "a request beside it, which it waited for": sources.neighbour,
    }
    return [f"{_count(number, 'token')} from {name}" for name, number in named.items() if number]


def _kv(e: Explanation) -> list[str]:
    kv = e.kv
    lines = [
        f"{step.what}: {step.formula} = {step.bytes:,} bytes"
        + (f" ({format_bytes(step.bytes)})" if step.bytes >= 1024 else "")
        for step in kv.steps
    ]
    if kv.grouping_ratio > 1:
        lines.append(
            f"grouped heads: {kv.num_heads} query heads share {kv.num_kv_heads}; with one each a "
            f"token would take {kv.bytes_per_token_ungrouped:,} bytes, {kv.grouping_ratio:g} times "
            "as much"
        )
    else:
        lines.append(f"all {kv.num_heads} query heads have keys and values of their own")
    return lines


def _decode(e: Explanation) -> list[str]:
    lines = [_step(part) for part in e.decode]
    if e.num_missing_tokens:
        lines.append(f"({_count(e.num_missing_tokens, 'token')} more were not recorded)")
    return lines


def _step(part: DecodePart) -> str:
    shown = "  ".join(
        f"{'*' if c.chosen else ''}{_quoted(c.text)} {c.model_probability:.1%}"
        + ("" if c.probability > 0 else " cut")
        for c in part.candidates
    )
    if not any(c.chosen for c in part.candidates):
        shown += f"  *{_quoted(part.text)} (further down)"
    return f"{part.num_input_tokens:>5} tokens in, {part.ms:.0f} ms: {shown}"


def _cache(e: Explanation) -> list[str]:
    cache = e.cache
    lines = [
        f"{cache.num_computed:,} positions were computed to feed {cache.num_positions:,}",
        f"positions: {_saved(cache.positions)}",
        f"dot products q . k of one head in one layer: {_saved(cache.dot_products)}",
    ]
    if cache.sliding_dot_products is not None:
        lines.append(f"the same in a layer with a window: {_saved(cache.sliding_dot_products)}")
    return lines


def _saved(counts: Computations) -> str:
    return (
        f"{counts.with_cache:,} with the cache, {counts.without_cache:,} without "
        f"({counts.ratio:.1f} times as many)"
    )


def _strategy(e: Explanation) -> list[str]:
    greedy = all(part.uniform is None for part in e.decode)
    lines = [e.strategy.words]
    if not greedy:
        lines.append(f"seed {e.strategy.seed}: the same seed gives the same answer")
    ended = {"stop": "the model ended the answer", "length": "the token limit ended the answer"}
    if e.stop_reason is not None:
        ended["stop"] = f"{e.stop_reason!r} ended the answer"
    lines.append(ended.get(e.finish_reason or "", f"ended: {e.finish_reason}"))
    return lines


def _timeline(e: Explanation) -> list[str]:
    t = e.timeline
    lines = []
    if t.ttft_ms is not None:
        lines.append(f"first word after {t.ttft_ms:.1f} ms (TTFT)")
    if t.tpot_ms is not None:
        slowest = max(t.itl_ms)
        lines.append(f"then {t.tpot_ms:.1f} ms per token (TPOT), the longest gap {slowest:.1f} ms")
    phases = " + ".join(f"{span.name} {span.ms:.1f}" for span in t.phases)
    shares = " + ".join(f"{span.name} {span.ms:.1f}" for span in t.shares)
    lines += [f"one after the other: {phases} = {t.e2e_ms:.1f} ms", f"by kind of work: {shares}"]
    if t.num_preemptions:
        lines.append(f"preempted {_count(t.num_preemptions, 'time')}")
    return lines


def _quoted(text: str) -> str:
    """A token's text on one line, its spaces visible."""
    return "'" + text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + "'"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _flops(flops: float) -> str:
    for unit, size in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if flops >= size:
            return f"{flops / size:.2f} {unit}"
    return f"{flops:,.0f} FLOP"
