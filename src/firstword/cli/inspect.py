"""`firstword inspect`: what a model file says about itself. It loads headers only.

Not here: what running the model would take, which `firstword plan` says.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from firstword.cli import options

if TYPE_CHECKING:
    from firstword.quant import RawTensor
    from firstword.weights.gguf import GGUFFile
    from firstword.weights.gguf_values import MetadataValue

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Lines: TypeAlias = Iterator[tuple[str, str]]

_NUM_ITEMS = 6
_NUM_CHARACTERS = 200
_LABEL_WIDTH = 15


def inspect(
    model: Annotated[str, typer.Argument(help="A catalogue name, a path, or hf:ORG/REPO[:FILE].")],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    metadata: Annotated[bool, typer.Option("--metadata", help="List all metadata.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="List the operations of a step and what they take.")
    ] = False,
    tokens: Annotated[
        int | None, typer.Option(help="With --plan: count a prompt of so many tokens too.")
    ] = None,
    kv_type: Annotated[
        str | None,
        typer.Option(help="With --plan: how keys and values are kept, f16 or q8.", metavar="TYPE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a model file says about itself, without loading it."""
    from firstword.weights.catalogue import resolve
    from firstword.weights.gguf import GGUFFile

    for option, value in (("--tokens", tokens), ("--kv-type", kv_type)):
        if value is not None and not plan:
            raise typer.BadParameter(f"{option} is for --plan")
    with GGUFFile.open(resolve(model)) as file:
        if plan:
            from firstword.cli.inspect_plan import print_plan
            from firstword.weights.checkpoint import Checkpoint

            dtype = options.checked_kv_type(kv_type or "f16")
            print_plan(Checkpoint(file), model, tokens, dtype, as_json)
            return
        if as_json:
            print(json.dumps(_as_json(file, tensors, metadata), indent=2))
            return
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        _print(_summary_lines(_summary(file)), width)
        if tensors:
            print("\ntensors")
            _print(((t.name, _tensor_text(t)) for t in file.tensors.values()), width)
        if metadata:
            print("\nmetadata")
            _print(((k, _value_text(v)) for k, v in file.metadata.items()), width)


def _summary(file: GGUFFile) -> dict[str, Json]:
    """The facts, in the order they are shown; those that only a built architecture has may miss."""
    from firstword.errors import CheckpointError
    from firstword.ops.weight_types import memory_bytes
    from firstword.weights.checkpoint import Checkpoint

    summary: dict[str, Json] = {
        "name": _text_of(file, "general.name"),
        "path": str(file.path),
        "bytes": file.num_bytes,
        "format": f"GGUF v{file.version}",
        "architecture": _text_of(file, "general.architecture"),
        "tensor_bytes": sum(t.nbytes for t in file.tensors.values()),
        "memory_bytes": sum(memory_bytes(t) for t in file.tensors.values()),
        "parameters": sum(t.num_values for t in file.tensors.values()),
    }
    try:
        config = Checkpoint(file).config
        summary |= {
            "context": config.max_position_embeddings,
            "layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size,
            "intermediate_size": config.intermediate_size,
            "attention_heads": config.num_attention_heads,
            "key_value_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "sliding_window": config.sliding_window,
            "vocabulary": config.vocab_size,
        }
    except CheckpointError as error:
        summary["cannot_run"] = f"{error.where}: {error.problem}"
    summary["chat_template"] = "tokenizer.chat_template" in file.metadata
    summary["tensor_types"] = _tensor_types(file)
    return summary


def _tensor_types(file: GGUFFile) -> dict[str, Json]:
    """Bytes and number of tensors by type, the largest first."""
    totals: dict[str, tuple[int, int]] = {}
    for tensor in file.tensors.values():
        size, count = totals.get(tensor.type.name, (0, 0))
        totals[tensor.type.name] = (size + tensor.nbytes, count + 1)
    ordered = sorted(totals.items(), key=lambda item: -item[1][0])
    return {name: {"bytes": size, "tensors": count} for name, (size, count) in ordered}


def _summary_lines(summary: dict[str, Json]) -> Lines:
    yield "model", str(summary["name"] or "(no name)")
    yield "file", str(summary["path"])
    yield "size", f"{_megabytes(summary['bytes'])}, {summary['format']}"
    yield "architecture", str(summary["architecture"] or "(none named)")
    yield "parameters", f"{summary['parameters']:,}"
    if "cannot_run" in summary:
        yield "cannot run", str(summary["cannot_run"])
    else:
        yield "context", f"{summary['context']:,} tokens"
        if summary["sliding_window"]:
            yield "window", f"{summary['sliding_window']:,} tokens in some layers"
        yield "layers", f"{summary['layers']}"
        yield "width", f"{summary['hidden_size']:,}, feed-forward {summary['intermediate_size']:,}"
        heads = f"{summary['attention_heads']} ({summary['key_value_heads']} of keys and values)"
        yield "heads", f"{heads}, each {summary['head_dim']} wide"
        yield "vocabulary", f"{summary['vocabulary']:,} tokens"
    yield "chat template", "yes" if summary["chat_template"] else "no"
    types = summary["tensor_types"]
    assert isinstance(types, dict)
    for i, (name, entry) in enumerate(types.items()):
        assert isinstance(entry, dict)
        label = "tensor types" if i == 0 else ""
        noun = "tensor" if entry["tensors"] == 1 else "tensors"
        yield label, f"{name}: {_megabytes(entry['bytes'])} in {entry['tensors']:,} {noun}"
    if summary["memory_bytes"] != summary["tensor_bytes"]:
        yield "in memory", f"{_megabytes(summary['memory_bytes'])} of tensors in all"


def _as_json(file: GGUFFile, tensors: bool, metadata: bool) -> dict[str, Json]:
    document = _summary(file)
    if tensors:
        document["tensors"] = [
            {"name": t.name, "type": t.type.name, "shape": list(t.shape), "bytes": t.nbytes}
            for t in file.tensors.values()
        ]
    if metadata:
        document["metadata"] = {key: _value_json(v) for key, v in file.metadata.items()}
    return document


def _text_of(file: GGUFFile, key: str) -> str | None:
    value = file.metadata.get(key)
    return _shorten(value) if isinstance(value, str) else None


def _megabytes(size: Json) -> str:
    assert isinstance(size, int)
    return f"{size / 1e6:,.1f} MB" if size >= 1_000_000 else f"{size:,} bytes"


def _tensor_text(tensor: RawTensor) -> str:
    shape = " x ".join(str(size) for size in tensor.shape)
    return f"{tensor.type.name} [{shape}], {tensor.nbytes:,} bytes"


def _value_text(value: MetadataValue) -> str:
    if isinstance(value, str):
        return _shorten(value)
    if isinstance(value, bool | int | float):
        return f"{value}"
    shown = ", ".join(_shorten(str(item)) for item in value[:_NUM_ITEMS])
    more = f", ... {len(value):,} in all" if len(value) > _NUM_ITEMS else ""
    return f"[{shown}{more}]"


def _value_json(value: MetadataValue) -> Json:
    """A value; an array as its length and first items, for a vocabulary would fill the screen."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)  # JSON has no infinity
    if isinstance(value, bool | int | str):
        return value
    first: list[Json] = [_value_json(item) for item in value[:_NUM_ITEMS]]
    return {"length": len(value), "first": first}


def _shorten(text: str) -> str:
    """One line of at most so many printable characters."""
    cut = _printable(text[:_NUM_CHARACTERS])
    return cut if len(text) <= _NUM_CHARACTERS else f"{cut}... {len(text):,} characters"


def _printable(text: str) -> str:
    """Text with all else escaped: a file must not be able to steer the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _print(lines: Lines, width: int | None) -> None:
    for label, value in lines:
        print("\n".join(_layout(_printable(label), _printable(value), width)))


def _layout(label: str, value: str, width: int | None) -> list[str]:
    """A label and its value: on one line in a pipe (`width` None), wrapped on a terminal."""
    line = f"{label:<{_LABEL_WIDTH}} {value}"
    if width is None or len(line) <= width:
        return [line]
    indent = " " * (_LABEL_WIDTH + 1)
    if len(label) > _LABEL_WIDTH or width < 3 * _LABEL_WIDTH:
        indent = "  "
    head = label if indent == "  " else f"{label:<{_LABEL_WIDTH}} "
    lines = textwrap.wrap(value, max(20, width), initial_indent=indent, subsequent_indent=indent)
    if indent == "  ":
        return [head, *lines] if label else lines
    return [head + lines[0].lstrip(), *lines[1:]]
