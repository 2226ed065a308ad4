"""`firstword plan`: the memory a model will need, before anything but headers is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firstword.cli import options
from firstword.cli.terminal import format_bytes

if TYPE_CHECKING:
    from firstword.plan.planner import Plan


def plan(
    model: Annotated[
        str, typer.Argument(help="A model as for --model, or a config.json (or its folder).")
    ],
    users: Annotated[int, typer.Option(help="Users at once.")] = 1,
    context: Annotated[
        int | None, typer.Option(help="Tokens of each; otherwise 4,096 or what the model takes.")
    ] = None,
    kv_type: Annotated[
        str,
        typer.Option(help="Type of keys and values: f16, q8, bf16 or f32.", metavar="TYPE"),
    ] = "f16",
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Say what memory the weights and the keys and values will take."""
    from firstword.plan.hardware import usable_memory
    from firstword.plan.planner import make_plan, open_for_planning

    dtype = options.checked_kv_type(kv_type)
    checkpoint = open_for_planning(_locate(model))
    result = make_plan(checkpoint, name=model, users=users, context=context, kv_dtype=dtype)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        typer.echo(render(result, usable_memory().num_bytes))


def _locate(model: str) -> Path:
    """A config.json or its folder is taken as it is; everything else is a model reference."""
    path = Path(model)
    if path.suffix == ".json" or (path / "config.json").is_file():
        return path
    from firstword.weights.catalogue import resolve

    return resolve(model)


def render(plan: Plan, free_bytes: int) -> str:
    """The plan as lines of text.

    Args:
        plan: the numbers.
        free_bytes: memory that can still be taken on this machine.
    """
    value = plan.kv_value_bytes
    per_layer = 2 * plan.num_kv_heads * (plan.head_dim * value + plan.kv_scale_bytes)
    values = f"{plan.head_dim} values x {value} byte{'s' if value > 1 else ''}"
    if plan.kv_scale_bytes:
        values = f"({values} + a scale of {plan.kv_scale_bytes})"
    lines = [
        f"{plan.model}: {plan.num_parameters:,} parameters",
        "",
        f"weights            {format_bytes(plan.weight_bytes):>10}   {plan.weight_bytes:,} bytes",
        *_in_memory(plan),
        "",
        f"keys and values, {plan.kv_dtype}",
        f"  one layer        {format_bytes(per_layer):>10}   K and V x {plan.num_kv_heads} heads x "
        f"{values}",
        _row("one token", plan.kv_bytes_per_token, f"x {plan.num_layers} layers"),
        _row(f"{plan.context:,} tokens", plan.kv_bytes_one_user),
    ]
    if plan.context != plan.max_context:
        whole = plan.kv_bytes_full_context
        lines.append(_row(f"{plan.max_context:,} tokens", whole, "the whole context"))
    if plan.users > 1:
        lines.append(
            _row(f"{plan.users} users", plan.kv_bytes_all_users, f"{plan.context:,} tokens each")
        )
    if plan.num_sliding_layers:
        lines.append(
            f"  {plan.num_sliding_layers} of {plan.num_layers} layers keep only their last "
            f"{plan.sliding_window:,} tokens"
        )
    lines += [f"  {_grouping(plan)}", *_smaller(plan), "", _total(plan, free_bytes)]
    return "\n".join(lines)


def _smaller(plan: Plan) -> list[str]:
    """What a type smaller than float16 saves and costs."""
    from firstword.kvcache.kv_types import cost_in_words

    cost = cost_in_words(plan.kv_dtype)
    if cost is None:
        return []
    whole = plan.kv_bytes_per_token_float16
    saved = f"{plan.kv_dtype} takes {plan.kv_bytes_per_token / whole:.1%} of float16's {whole:,}"
    return [f"  {saved} bytes a token", f"  {cost}"]


def _in_memory(plan: Plan) -> list[str]:
    if plan.memory_bytes == plan.weight_bytes:
        return []
    return [_row("in memory", plan.memory_bytes, "as the compiled kernels keep them")]


def _row(what: str, num_bytes: int, note: str = "") -> str:
    row = f"  {what:<16} {format_bytes(num_bytes):>10}   {num_bytes:,} bytes"
    return f"{row}, {note}" if note else row


def _grouping(plan: Plan) -> str:
    if plan.num_heads == plan.num_kv_heads:
        return f"every one of the {plan.num_heads} query heads has keys and values of its own"
    return (
        f"{plan.num_heads} query heads share {plan.num_kv_heads} key/value heads: "
        f"{plan.num_kv_heads}/{plan.num_heads} of the "
        f"{format_bytes(plan.kv_bytes_without_grouping)} a token would need with one for each"
    )


def _total(plan: Plan, free_bytes: int) -> str:
    who = "1 user" if plan.users == 1 else f"{plan.users} users"
    verdict = "fits" if plan.total_bytes <= free_bytes else "does not fit"
    return (
        f"in all {format_bytes(plan.total_bytes)} for {who} of {plan.context:,} tokens: {verdict} "
        f"the {format_bytes(free_bytes)} free here"
    )
